"""A language model as judge: any OpenAI-compatible chat endpoint, asked once for each reply and remembered.

What it said lies in a file of one verdict a line, with model, temperature and the digest of the prompt. A
verdict is found again by all of these and the case itself, so a change of any of them asks anew. What failed
is counted and never remembered.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import orjson
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from bridges.solver import ChatSolver, SolverAsk, SolverError
from evals.metrics.outcome import Asked, Verdicts
from evals.shapes import OPEN, fault_of

PROMPT = files(__package__).joinpath("judge.txt").read_text(encoding="utf-8")
PROMPT_SHA256 = hashlib.sha256(PROMPT.encode()).hexdigest()
SYSTEM = "You are a careful and strict examiner."
ANSWER_TOKENS = 200
IN_FLIGHT = 4
DEADLINE_S = 60.0
PATIENCE = 12
"""After so many failures in a row the endpoint is given up for this round."""

_JSON = json.JSONDecoder()


class Answers(Protocol):
    """What answers: ``bridges.solver.ChatSolver``."""

    async def solve(self, ask: SolverAsk) -> str:
        """The answer. Raises ``SolverError``."""

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Judged:
    """What a round of judging came to.

    :param failed: by code: ``solver_timeout`` and the like; ``unreadable`` where an answer held no verdict,
        ``given_up`` where it was not asked any more, ``not_kept`` where its verdict could not be written
    """

    verdicts: dict[Asked, bool] = field(default_factory=dict)
    asked: int = 0
    remembered: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class _Line(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    question: str
    accepted: list[str]
    reply: str
    right: bool


_VERDICT = TypeAdapter[Any](_Line)


class VerdictFile:
    """Verdicts on disk, appended as they come. A line that is none is skipped: its case is asked again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, Any]] = []
        if path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    told = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue
                if fault_of(_VERDICT, told) is None:
                    self._lines.append(told)

    def verdicts(self, settings: Mapping[str, Any] | None = None) -> Verdicts:
        """By case; the newest of each. ``settings``: only those that were given under them."""
        found: dict[Asked, bool] = {}
        for line in self._lines:
            if settings is None or all(line.get(name) == value for name, value in settings.items()):
                found[Asked(line["question"], tuple(line["accepted"]), line["reply"])] = line["right"]
        return found

    def settings(self) -> dict[str, Any] | None:
        """Those of the newest verdict."""
        if not self._lines:
            return None
        return settings_in(self._lines[-1])

    def add(self, asked: Asked, right: bool, answer: str, settings: Mapping[str, Any]) -> None:
        case = {"question": asked.question, "accepted": asked.accepted, "reply": asked.reply}
        line = {**settings, **case, "right": right, "answer": answer}
        self._lines.append({**line, "accepted": list(asked.accepted)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as out:
            out.write(orjson.dumps(line) + b"\n")


class Judge:
    """:param answers: asked, and closed by ``aclose``; ``file``: where verdicts are remembered"""

    def __init__(self, answers: Answers, model: str, temperature: float, file: VerdictFile) -> None:
        self._answers = answers
        self._file = file
        self.settings: dict[str, Any] = {
            "model": model,
            "temperature": temperature,
            "prompt_sha256": PROMPT_SHA256,
        }

    async def ask(self, cases: Iterable[Asked]) -> Judged:
        """A verdict on each case, remembered ones first; a few are asked at a time."""
        judged = Judged()
        known = self._file.verdicts(self.settings)
        places = asyncio.Semaphore(IN_FLIGHT)
        failures = 0

        async def one(case: Asked) -> None:
            nonlocal failures
            async with places:
                if failures >= PATIENCE:
                    judged.failed["given_up"] += 1
                    return
                judged.asked += 1
                try:
                    answer = await self._answers.solve(SolverAsk(SYSTEM, prompt_of(case)))
                except SolverError as error:
                    judged.failed[error.code] += 1
                    failures += 1
                    return
                failures = 0
            right = verdict_in(answer)
            if right is None:
                judged.failed["unreadable"] += 1
                return
            judged.verdicts[case] = right
            try:
                self._file.add(case, right, answer, self.settings)
            except OSError:
                judged.failed["not_kept"] += 1

        async with asyncio.TaskGroup() as group:
            for case in sorted(set(cases), key=lambda c: (c.question, c.accepted, c.reply)):
                if case in known:
                    judged.remembered += 1
                    judged.verdicts[case] = known[case]
                else:
                    group.create_task(one(case))
        return judged

    async def aclose(self) -> None:
        await self._answers.aclose()


def chat_judge(
    url: str, model: str, file: VerdictFile, *, temperature: float = 0.0, api_key: str | None = None
) -> Judge:
    """A judge behind a chat endpoint; each answer has ``DEADLINE_S``."""
    params = {"temperature": temperature, "max_tokens": ANSWER_TOKENS}
    chat = ChatSolver(
        "judge", url, model, params, api_key=api_key, deadline_s=DEADLINE_S, max_in_flight=IN_FLIGHT
    )
    return Judge(chat, model, temperature, file)


def settings_in(told: Mapping[str, Any]) -> dict[str, Any]:
    """What a verdict depends on beside its case."""
    return {name: told.get(name) for name in ("model", "temperature", "prompt_sha256")}


def prompt_of(case: Asked) -> str:
    """The case rides as JSON: nothing in a reply can end it."""
    told = {"question": case.question, "right_answers": list(case.accepted), "reply": case.reply}
    return PROMPT.replace("{case}", orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()).strip()


def verdict_in(answer: str) -> bool | None:
    """What an answer says; ``None`` where it holds no verdict, or two that differ."""
    found = set()
    for place, character in enumerate(answer):
        if character != "{":
            continue
        try:
            told, _ = _JSON.raw_decode(answer, place)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("right"), bool):
            found.add(told["right"])
    return found.pop() if len(found) == 1 else None
