"""What must be in the files of runs, key by key, for those who read them. More may be in them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from evals.files import BadFile, read_object


def _stamp(at: str) -> str:
    datetime.fromisoformat(at).timestamp()  # a ValueError says what is wrong with it
    return at


OPEN = ConfigDict(strict=True, extra="allow")
"""Of a shape: types are as they are said, and keys that nobody reads may be there."""

Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Stamp = Annotated[str, AfterValidator(_stamp)]
"""A time as ISO 8601 has it."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def read_shaped(path: Path, shape: TypeAdapter[Any], remedy: str = "") -> dict[str, Any]:
    """A JSON file of this shape. Raises ``BadFile``: it is none; ``OSError``: it is not there.

    :param remedy: what is told behind the fault
    """
    found = read_object(path)
    if (wrong := fault_of(shape, found)) is not None:
        raise BadFile(f"{path}: {wrong}{remedy}")
    return found


def fault_of(shape: TypeAdapter[Any], value: Any) -> str | None:
    """What is wrong with a value read as JSON: the key and the problem. ``None``: nothing is."""
    try:
        shape.validate_python(value)
    except ValidationError as error:
        return told(error)
    return None


def told(error: ValidationError) -> str:
    """The first of what a validation found: ``pack.family: Field required``."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    return f"{key}: {problem}" if key else problem


# --- rows of decisions.jsonl --------------------------------------------------------------------------------


def _place(shortfall: str) -> str:
    kind, *place = shortfall.split("/")
    if place and not (len(place) == 2 and all(part.lstrip("-").isdecimal() for part in place)):
        raise ValueError("is no section/turn/byte")
    return kind


class TickRow(TypedDict):
    """One decision of a model that is asked tick by tick; see ``evals.stats.COLUMNS``."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    tick: Annotated[int, Field(ge=-(2**53), le=2**53)]
    media_time_s: NotRequired[Number | None]
    action: NotRequired[str | None]
    reason: NotRequired[str | None]
    text: NotRequired[str | None]
    question: NotRequired[str | None]
    window_frames: NotRequired[Count | None]
    chunk: NotRequired[Count | None]
    window: NotRequired[Count | None]
    prompt_tokens: NotRequired[Count | None]
    cached_tokens: NotRequired[Count | None]
    expected_cached_tokens: NotRequired[Count | None]
    shortfall: NotRequired[Annotated[str, AfterValidator(_place)] | None]
    completion_tokens: NotRequired[Count | None]
    latency_ms: NotRequired[Number | None]
    ttft_ms: NotRequired[Number | None]
    body_bytes: NotRequired[Count | None]
    retries: NotRequired[Count | None]
    score: NotRequired[Number | None]
    status: NotRequired[str | None]


class UnitRow(TypedDict):
    """A unit of what a full-duplex model heard. Times in ms of the stream."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    unit: Count
    start_ms: Number
    end_ms: Number


class _Piece(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    at_s: Number
    text: str


class _Group(TypedDict):
    """Of chunks of sound: without any only their count is there."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    count: Count
    mean: NotRequired[Number]
    p95: NotRequired[Number]
    max: NotRequired[Number]


def _whole(group: _Group) -> _Group:
    if group["count"] and not {"mean", "p95", "max"} <= group.keys():
        raise ValueError("has a count without mean, p95 and max")
    return group


_Spread = Annotated[_Group, AfterValidator(_whole)] | None


class _Timing(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    response_created_to_first_audio_ms: NotRequired[Number | None]
    commit_to_first_audio_ms: NotRequired[Number | None]
    max_chunk_gap_ms: NotRequired[Number | None]
    inter_chunk_gap_ms: NotRequired[_Spread]
    chunk_duration_ms: NotRequired[_Spread]


class ResponseRow(TypedDict):
    """An answer of a full-duplex model, in seconds of the stream."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    response_id: str
    created_s: Number
    status: NotRequired[str | None]
    text: NotRequired[str | None]
    transcript: NotRequired[str | None]
    pieces: NotRequired[list[_Piece] | None]
    audio_ms: NotRequired[Number | None]
    playback: NotRequired[dict[str, Number] | None]
    timing: NotRequired[_Timing | None]


class SessionRow(TypedDict):
    """How such a session ended."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    ok: bool
    sent_bytes: NotRequired[Count | None]


_ROWS: dict[Any, TypeAdapter[Any]] = {
    None: TypeAdapter(TickRow),
    "unit": TypeAdapter(UnitRow),
    "response": TypeAdapter(ResponseRow),
    "session": TypeAdapter(SessionRow),
}


def row_fault(row: Any) -> str | None:
    """What is wrong with a row of ``decisions.jsonl``."""
    if not isinstance(row, dict):
        return "no object"
    kind = row.get("kind")
    if not isinstance(kind, str | None) or kind not in _ROWS:
        return f"kind: {kind!r} is none of {', '.join(str(name) for name in _ROWS if name)}"
    return fault_of(_ROWS[kind], row)
