"""``vigil eval audit``: is every wrong decision the model's own?

Each is asked again cold: the recorded messages with all their pictures, in one request, under a salt that the
engine has never seen, so that nothing that was cached or said before can have a part in it. If the first
token comes out otherwise although the model had been sure of it, something between the stream and the
model is at fault: the reuse of a cache, a picture, a lost part of the prompt.

Sure means: with the recorded logprobs, and the request's own bias, the likeliest first token was ahead of the
next by more than ``MARGIN`` of probability. Where two answers are as good as equal, another batch or
another order of additions may turn them over, and no fault is told.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from bridges.chat_engine import VllmChat
from bridges.engine import ChatEngine, ChatRequest, Deadlines, Delta, EngineError
from engine_launch.facts import EngineFacts
from evals.files import write_json
from evals.replay.folder import DECISIONS, read_rows
from evals.runs.clips import TAPE, read_record
from evals.runs.keeper import Pictures
from evals.runs.manifest import CLIPS, FRAMES, RunError
from evals.runs.tape_reader import Asked, Moment, delta_of, read_tape, requests
from evals.shapes import OPEN, Count, read_shaped
from orchestrator.backends.replay.decide import Reason
from orchestrator.backends.replay.engine_call import stream_of
from orchestrator.backends.replay.request import TOP_LOGPROBS
from orchestrator.engine_setup import Engine
from orchestrator.settings import Settings

AUDIT = "audit.json"
MARGIN = 0.1
DEADLINES = Deadlines(first_token_s=300.0, total_s=300.0)
"""A cold prompt of a whole window takes a CPU engine a while."""
AT_A_TIME = 2
MODELS_OWN = frozenset({Reason.MODEL.value, Reason.UNHEALTHY.value})
"""Reasons of a silence that the model gave."""

Top = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first token at which answers part. ``margin``: of probability, to the next likely one."""

    token: int
    margin: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One decision, asked again.

    :param why: what the scorer found wrong with it; ``None``: nothing
    :param reason: why it was silent, where it was
    :param recorded: as it was; ``cold``: as it is now; ``None`` where the engine told no logprobs
    :param error: why there is no answer now
    """

    clip: str
    tick: int
    why: str | None
    reason: str | None = None
    recorded: Choice | None = None
    cold: Choice | None = None
    error: str | None = None

    @property
    def sure(self) -> bool:
        return self.recorded is not None and self.recorded.margin > MARGIN

    @property
    def same(self) -> bool:
        return self.recorded is not None and self.cold is not None and self.recorded.token == self.cold.token

    @property
    def held(self) -> bool:
        """It was not the model that was silent: a gate, a repeat held back, an engine that was late."""
        return self.reason is not None and self.reason not in MODELS_OWN

    @property
    def faulty(self) -> bool:
        """Asked cold, the model does not do what it was sure of."""
        return self.sure and self.error is None and not self.same

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sure": self.sure, "same": self.same, "held": self.held}


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to be asked again.

    :param asked: ``None`` where the engine was not asked
    :param recorded: what came at the place where answers part
    """

    clip: str
    tick: int
    why: str | None
    reason: str | None
    asked: Asked | None
    recorded: Top | None


def choice_of(top: Top | None, bias: Mapping[int, float]) -> Choice | None:
    """From raw logprobs and the bias that the engine adds to them."""
    if not top:
        return None
    biased = {token: value + bias.get(token, 0.0) for token, value in top.items()}
    highest = max(biased.values())
    weights = {token: math.exp(value - highest) for token, value in biased.items()}
    whole = sum(weights.values())
    ranked = sorted(weights.items(), key=lambda entry: (-entry[1], entry[0]))
    second = ranked[1][1] if len(ranked) > 1 else 0.0
    return Choice(ranked[0][0], (ranked[0][1] - second) / whole)


def wrong_decisions(scores: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """Why each is wrong, by clip and tick, from the content of ``scores.json``."""
    return {
        (str(entry["clip"]), int(tick)): str(entry["why"])
        for entry in scores["wrong"]
        for tick in entry["ticks"]
    }


def decisions_of(
    run: Path, clip: str, index: int, wrong: Mapping[tuple[str, int], str], *, every: bool
) -> list[Decision]:
    """The wrong decisions of a clip, in order.

    :param index: of the token at which answers part
    :param wrong: see ``wrong_decisions``
    :param every: right ones that an engine was asked for too
    """
    folder = run / CLIPS / clip
    moments = read_tape(folder / TAPE)
    tops = _tops(moments, index)
    asked = {each.purpose: each for each in requests(moments, clip)}
    found: list[Decision] = []
    for row in read_rows(folder / DECISIONS):
        if (tick := row.get("tick")) is None:
            continue
        why, request = wrong.get((clip, tick)), asked.get(f"decision {tick}")
        if why is not None or (every and request is not None):
            top = tops.get(request.id) if request is not None else None
            found.append(Decision(clip, tick, why, row.get("reason"), request, top))
    return found


def _tops(moments: Sequence[Moment], index: int) -> dict[int, Top]:
    """Logprobs at token ``index`` of each answer that told them, by the request's number."""
    seen: dict[int, int] = {}
    tops: dict[int, Top] = {}
    for moment in moments:
        if moment.what != "delta":
            continue
        asked = int(moment.data["id"])
        for top in delta_of(moment.data).top_logprobs:
            if seen.get(asked, 0) == index:
                tops[asked] = top
            seen[asked] = seen.get(asked, 0) + 1
    return tops


class Auditor:
    """Asks decisions of a run again.

    :param engine: answers now; nothing of it is shared with other requests
    :param index: see ``decisions_of``
    """

    def __init__(self, run: Path, engine: ChatEngine, index: int) -> None:
        self._run = run
        self._engine = engine
        self._index = index
        self._pictures = Pictures(run / FRAMES)
        self._room = asyncio.Semaphore(AT_A_TIME)
        self._indexes: dict[str, Mapping[str, str]] = {}

    async def ask(self, decision: Decision) -> Finding:
        finding = Finding(decision.clip, decision.tick, decision.why, decision.reason)
        if decision.asked is None:
            return finding
        bias = {int(token): float(by) for token, by in decision.asked.params.get("logit_bias", {}).items()}
        finding = replace(finding, recorded=choice_of(decision.recorded, bias))
        try:
            async with self._room:
                top = await self._cold(decision.clip, decision.asked)
        except EngineError as error:
            return replace(finding, error=error.code)
        return replace(finding, cold=choice_of(top, bias))

    async def _cold(self, clip: str, asked: Asked) -> Top | None:
        index = self._pictures_of(clip)

        def picture(uuid: str) -> bytes:
            return self._pictures.read(index[uuid])

        params = {
            **asked.params,
            "cache_salt": secrets.token_hex(16),
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
            "max_tokens": self._index + 1,
        }
        request = ChatRequest(asked.messages, params, DEADLINES, purpose=asked.purpose)
        tops: list[Top] = []
        async with aclosing(stream_of(self._engine, request, picture)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    tops += event.top_logprobs
        return tops[self._index] if len(tops) > self._index else None

    def _pictures_of(self, clip: str) -> Mapping[str, str]:
        """Digests of a clip's pictures by their ids."""
        if clip not in self._indexes:
            self._indexes[clip] = read_record(self._run / CLIPS / clip)["pictures"]
        return self._indexes[clip]


async def audit(
    run: Path,
    manifest: Mapping[str, Any],
    clips: Sequence[str],
    wrong: Mapping[tuple[str, int], str],
    settings: Settings,
    engine: Engine,
    tell: Callable[[Finding], None],
    record: str,
    *,
    every: bool = False,
    limit: int | None = None,
) -> list[Finding]:
    """Ask the wrong decisions of a run again, or ``every`` one; leaves ``audit.json``.

    :param tell: of each finding as it comes
    :param record: digest of the run as it is now
    :raises RunError: the engine is another one, or its answers can't be told apart by a token
    """
    index = _index_of(manifest, engine.facts)
    found: list[Decision] = []
    for clip in clips:
        found += decisions_of(run, clip, index, wrong, every=every)
    secret = settings.engine_api_key
    # Every picture with every request, and without an identity: no cache of the engine can hold it.
    chat = VllmChat(
        engine.url,
        engine.facts.model,
        api_key=secret.get_secret_value() if secret else None,
        uuid_parts=False,
    )
    auditor = Auditor(run, chat, index)

    async def one(decision: Decision) -> Finding:
        finding = await auditor.ask(decision)
        tell(finding)
        return finding

    try:
        findings = list(await asyncio.gather(*(one(decision) for decision in found[:limit])))
    finally:
        await chat.aclose()
    write_json(
        run / AUDIT,
        {
            "record": record,
            "margin": MARGIN,
            "decisions": len(findings),
            "sure": sum(each.sure for each in findings),
            "faulty": sum(each.faulty for each in findings),
            "held": sum(each.held for each in findings if each.why is not None),
            "findings": [each.to_dict() for each in findings],
        },
    )
    return findings


class _Audit(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    record: str
    decisions: Count
    sure: Count
    faulty: Count
    held: Count


_AUDIT = TypeAdapter[Any](_Audit)


def read_audit(run: Path) -> dict[str, Any]:
    """``audit.json``. Raises ``BadFile``: it is none; ``OSError``: it is not there."""
    return read_shaped(run / AUDIT, _AUDIT, f"; vigil eval audit {run} makes it anew")


def _index_of(manifest: Mapping[str, Any], facts: EngineFacts) -> int:
    was = EngineFacts.from_dict(manifest["engine"])
    for name in ("model", "weights", "decision_index", "decision_ids"):
        if getattr(was, name) != getattr(facts, name):
            raise RunError(
                f"this is not the engine of the run: its {name} was {getattr(was, name)!r} and is "
                f"{getattr(facts, name)!r}"
            )
    if facts.decision_index is None:
        raise RunError(
            "this engine's self-check found no token at which speech and silence part, so that no first "
            "choice can be held against another"
        )
    return facts.decision_index
