"""Tapes read again: each line held against what its kind must have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import orjson
from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import TypedDict

from bridges import engine as engines
from bridges.engine import Delta, EngineError, Finished
from evals.files import whole_lines
from evals.runs.tape import ERROR_EXTRAS, Messages, What, digest_of
from evals.shapes import OPEN, Count, Number, Sha256, fault_of


class TapeError(Exception):
    """A tape can't be read. The message says which, and where."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One line: ``t`` seconds after the first, what happened, and the rest of it."""

    t: float
    what: What
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it went out.

    :param messages: all of them, pictures by uuid
    """

    id: int
    purpose: str
    messages: Messages
    params: Mapping[str, Any]
    digest: str


def read_tape(path: Path) -> list[Moment]:
    """Raises ``TapeError``."""
    moments: list[Moment] = []
    numbers = _Numbers()
    try:
        for number, line in whole_lines(path):
            try:
                data = orjson.loads(line)
            except orjson.JSONDecodeError as bad:
                raise TapeError(f"{path}:{number}: no JSON: {bad}") from bad
            if (wrong := _fault_of(data) or numbers.fault_of(data)) is not None:
                raise TapeError(f"{path}:{number}: no line of a tape: {wrong}")
            moments.append(Moment(float(data.pop("t")), data.pop("what"), data))
    except OSError as error:
        raise TapeError(f"{path}: {error.strerror or error}") from error
    return moments


def requests(moments: Sequence[Moment], name: str) -> Iterator[Asked]:
    """Every request of a tape, in order.

    :param name: of the tape, for errors
    :raises TapeError: one is not whole
    """
    last: dict[str, Messages] = {}
    for moment in moments:
        if moment.what != "ask":
            continue
        data = moment.data
        kind = str(data["purpose"]).partition(" ")[0]
        messages = [*last.get(kind, ())[: data["shared"]], *data["messages"]]
        last[kind] = messages
        if digest_of(messages) != data["digest"]:
            told = f"request {data['id']} ({data['purpose']}) is not what its digest says"
            raise TapeError(f"{name}: {told}")
        yield Asked(data["id"], data["purpose"], messages, data["params"], data["digest"])


def error_of(data: Mapping[str, Any]) -> EngineError:
    """The error that was recorded; one that this build does not know is an ``EngineError``."""
    kind = getattr(engines, str(data["type"]), None)
    if not (isinstance(kind, type) and issubclass(kind, EngineError)):
        return EngineError(data["message"])
    return kind(data["message"], *(data[name] for name in ERROR_EXTRAS if name in data))


def finished_of(data: Mapping[str, Any]) -> Finished:
    return _FINISHED.validate_json(orjson.dumps(data), strict=True)


def delta_of(data: Mapping[str, Any]) -> Delta:
    tops = tuple({int(token): float(value) for token, value in top.items()} for top in data["tops"])
    return Delta(data["text"], tuple(data["ids"]), tops)


# --- what must be in a line ---------------------------------------------------------------------------

_FINISHED = TypeAdapter(Finished)
_NUMBERED = re.compile(r"(decision \d{1,15}|prewarm \d{1,15}/\d{1,15})")


def _purpose(purpose: str) -> str:
    if purpose.partition(" ")[0] in ("decision", "prewarm") and not _NUMBERED.fullmatch(purpose):
        raise ValueError("says no number")
    return purpose


def _whole(finished: dict[str, Any]) -> dict[str, Any]:
    finished_of(finished)
    return finished


def _makes(error: dict[str, Any]) -> dict[str, Any]:
    """Solvers' errors have a code, engines' a type."""
    needed = ("message", "type") if "type" in error else ("message", "code")
    for key in needed:
        if not isinstance(error.get(key), str):
            raise ValueError(f"{key} is no text")
    if "type" in error:
        try:
            error_of(error)
        except TypeError as wrong:
            raise ValueError(f"is no {error['type']}") from wrong
    return error


Token = Annotated[str, Field(pattern=r"^-?\d{1,15}$")]


class _Line(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    t: Number


class _Frame(_Line):
    media_time_ms: Annotated[int, Field(ge=-(2**53), le=2**53)]
    sha256: Sha256


class _Kept(_Line):
    uuid: str


class _Query(_Line):
    text: str


class _Fact(_Line):
    kind: str
    data: dict[str, Any]


class _Want(_Line):
    id: Count
    kind: str


class _Grant(_Line):
    id: Count


class _Params(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    logit_bias: NotRequired[dict[Token, Number]]


class _Ask(_Line):
    id: Count
    purpose: Annotated[str, AfterValidator(_purpose)]
    shared: Count
    messages: list[dict[str, Any]]
    params: _Params
    digest: str


class _Delta(_Line):
    id: Count
    text: str
    ids: list[int]
    tops: list[dict[Token, Number]]


class _End(_Line):
    id: Count
    finished: NotRequired[Annotated[dict[str, Any], AfterValidator(_whole)]]
    text: NotRequired[str]
    finish_reason: NotRequired[str]
    alive: NotRequired[bool]
    error: NotRequired[Annotated[dict[str, Any], AfterValidator(_makes)]]


class _Frozen(TypedDict):
    """Of a fact: the head of a window."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    head: int
    memory: list[Annotated[list[str], Field(min_length=2, max_length=2)]]


class _Switched(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    head: int


class _Opened(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    text_scale: NotRequired[Number]


_LINES: Mapping[What, TypeAdapter[Any]] = {
    "frame": TypeAdapter(_Frame),
    "kept": TypeAdapter(_Kept),
    "query": TypeAdapter(_Query),
    "clear": TypeAdapter(_Line),
    "close": TypeAdapter(_Line),
    "fact": TypeAdapter(_Fact),
    "want": TypeAdapter(_Want),
    "grant": TypeAdapter(_Grant),
    "ask": TypeAdapter(_Ask),
    "delta": TypeAdapter(_Delta),
    "end": TypeAdapter(_End),
}
_FACTS: Mapping[str, TypeAdapter[Any]] = {
    "head_frozen": TypeAdapter(_Frozen),
    "window_switched": TypeAdapter(_Switched),
    "memory_opened": TypeAdapter(_Opened),
}


def _fault_of(line: Any) -> str | None:
    if not isinstance(line, dict):
        return "no object"
    what = line.get("what")
    if not isinstance(what, str) or (shape := _LINES.get(what)) is None:  # type: ignore[call-overload]
        return f"what: {what!r} is nothing that happens"
    if (wrong := fault_of(shape, line)) is not None:
        return wrong
    if what == "fact" and (known := _FACTS.get(line["kind"])) is not None:
        wrong = fault_of(known, line["data"])
        return None if wrong is None else f"data.{wrong}"
    return None


class _Numbers:
    """Those by which lines speak of requests and of permits."""

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._wanted: set[int] = set()

    def fault_of(self, line: Mapping[str, Any]) -> str | None:
        match line["what"]:
            case "ask" | "want" as what:
                known = self._asked if what == "ask" else self._wanted
                if line["id"] in known:
                    return f"id: {line['id']} is one of before"
                known.add(line["id"])
            case "delta" | "end" if line["id"] not in self._asked:
                return f"id: {line['id']} was never asked"
            case "grant" if line["id"] not in self._wanted:
                return f"id: {line['id']} was never wanted"
        return None
