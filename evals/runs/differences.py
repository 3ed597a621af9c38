"""What one clip did otherwise in a rerun: in which request, section of the prompt, or decision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from evals.replay.folder import DECISIONS, read_rows
from evals.runs.clips import TAPE
from evals.runs.manifest import CLIPS
from evals.runs.tape import Messages
from evals.runs.tape_reader import Asked, Moment, read_tape, requests
from evals.stats import COLUMNS
from memory.head import BETWEEN

MEASURED = frozenset({"engine", "latency_ms", "ttft_ms"})
"""Columns that tell of the machines, not of what was decided."""
EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Difference:
    """
    :param what: ``plan`` (the words of a request), ``params`` (its parameters), ``decision`` (a row),
        ``missing`` (a request or a row that did not come), ``new`` (one that had not come before)
    :param purpose: of the request, or ``row``; ``tick``: where it is one tick's
    :param section: of the prompt (``system``, a section of the head, ``user``, ``said``, ``open``), or the
        parameter or column; ``turn``: of the window, ``byte``: of the section
    :param before: an excerpt of what was recorded; ``now``: of what is
    """

    clip: str
    what: str
    purpose: str
    tick: int | None = None
    section: str | None = None
    turn: int | None = None
    byte: int | None = None
    before: str | None = None
    now: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        place = f"tick {self.tick}" if self.tick is not None else self.purpose
        told = f"{self.clip}, {place}: {self.what}"
        if self.section is not None:
            told += f", section {self.section}" if self.what == "plan" else f", {self.section}"
        if self.turn is not None:
            told += f" of turn {self.turn}"
        if self.byte is not None:
            told += f", byte {self.byte}"
        if self.before is not None or self.now is not None:
            told += f": {self.before!r} -> {self.now!r}"
        return told


def clip_differences(before: Path, now: Path, name: str) -> list[Difference]:
    """Of one clip in two run folders. Raises ``TapeError`` or ``OSError`` where it is not all there."""
    old, new = (folder / CLIPS / name for folder in (before, now))
    return [
        *request_differences(name, read_tape(old / TAPE), read_tape(new / TAPE)),
        *row_differences(name, read_rows(old / DECISIONS), read_rows(new / DECISIONS)),
    ]


def request_differences(name: str, old: Sequence[Moment], new: Sequence[Moment]) -> Iterator[Difference]:
    """Requests are held against one another by their purposes, in the order of the old ones."""
    heads = _Heads(old)
    left: defaultdict[str, list[Asked]] = defaultdict(list)
    for asked in requests(new, name):
        left[asked.purpose].append(asked)
    for asked in requests(old, name):
        tick = _tick(asked.purpose)
        if not left[asked.purpose]:
            yield Difference(name, "missing", asked.purpose, tick)
            continue
        again = left[asked.purpose].pop(0)
        if asked.digest != again.digest:
            yield _plan_difference(name, asked, again, heads.at(asked.id))
        for param in sorted({*asked.params, *again.params}):
            before, now = asked.params.get(param), again.params.get(param)
            if before != now:
                yield Difference(
                    name, "params", asked.purpose, tick, param, None, None, str(before), str(now)
                )
    for purpose, unasked in left.items():
        for _ in unasked:
            yield Difference(name, "new", purpose, _tick(purpose))


def row_differences(
    name: str, old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> Iterator[Difference]:
    for before, now in zip_longest(old, new):
        if before is None or now is None:
            row = before or now or {}
            yield Difference(name, "missing" if now is None else "new", "row", row.get("tick"))
            continue
        for column in COLUMNS:
            if column not in MEASURED and before.get(column) != now.get(column):
                told = str(before.get(column)), str(now.get(column))
                yield Difference(name, "decision", "row", before.get("tick"), column, None, None, *told)


def _tick(purpose: str) -> int | None:
    kind, _, rest = purpose.partition(" ")
    return int(rest) if kind == "decision" else None


# --- where two prompts part ---------------------------------------------------------------------------------


class _Heads:
    """The sections of the head that each request stood on."""

    def __init__(self, moments: Sequence[Moment]) -> None:
        frozen: dict[int, list[tuple[str, str]]] = {}
        live: list[tuple[str, str]] = []
        self._at: dict[int, list[tuple[str, str]]] = {}
        for moment in moments:
            if moment.what == "ask":
                purpose = str(moment.data["purpose"])
                kind, _, rest = purpose.partition(" ")
                warmed = int(rest.partition("/")[0]) if kind == "prewarm" else None
                self._at[moment.data["id"]] = live if warmed is None else frozen.get(warmed, live)
            elif moment.what == "fact":
                data = moment.data["data"]
                if moment.data["kind"] == "head_frozen":
                    frozen[data["head"]] = [(str(name), str(text)) for name, text in data["memory"]]
                elif moment.data["kind"] == "window_switched":
                    live = frozen.get(data["head"], live)

    def at(self, asked: int) -> list[tuple[str, str]]:
        return self._at[asked]


def _plan_difference(name: str, old: Asked, new: Asked, head: Sequence[tuple[str, str]]) -> Difference:
    index = next(i for i, (one, other) in enumerate(zip_longest(old.messages, new.messages)) if one != other)
    before, now = (_text(messages, index) for messages in (old.messages, new.messages))
    at = next(
        (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
    )
    section, start = _section(old, index, at, head)
    byte = len(before[start:at].encode("utf-8", "surrogatepass"))
    turn = (index - 1) // 2 if section in ("user", "said", "open") else None
    told = before[at : at + EXCERPT], now[at : at + EXCERPT]
    return Difference(name, "plan", old.purpose, _tick(old.purpose), section, turn, byte, *told)


def _section(old: Asked, index: int, at: int, head: Sequence[tuple[str, str]]) -> tuple[str, int]:
    """The section at character ``at`` of a message, and where it begins in it."""
    if old.purpose.startswith(("summary", "rollup", "write", "solve")):
        return "text", 0
    if index == 0:
        return "system", 0
    start = 0
    for section, text in head if index == 1 else ():
        end = start + len(text) + len(BETWEEN)
        if at < end:
            return section, start
        start = end
    if index >= len(old.messages):
        return "open", 0
    if old.messages[index]["role"] == "assistant":
        return "said", 0
    return ("open" if index == len(old.messages) - 1 else "user"), start


def _text(messages: Messages, index: int) -> str:
    """A message as text, its pictures by their ids."""
    if index >= len(messages):
        return ""
    content = messages[index].get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(
        part["text"] if part.get("type") == "text" else f"<{part.get('uuid')}>" for part in content
    )
