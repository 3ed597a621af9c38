"""What a client may send: every command of the realtime dialect as a typed model, and its parser.

``parse_command`` maps aliases to canonical names first, so the rest of Vigil sees one name per command.
Errors are ``InvalidRequest`` with the stable codes ``invalid_json``, ``bad_event``, ``unknown_event``,
and ``TooLarge`` with ``event_too_large``; each carries the client's ``event_id`` where it could be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from orchestrator.wire.errors import InvalidRequest, TooLarge

MAX_FRAME_BYTES = 15 * 1024 * 1024
"""Largest inbound WebSocket frame in UTF-8 bytes."""

MAX_DEPTH = 64
"""Levels of lists and objects in an event; what is nested deeper could be read but never written again."""

MAX_NAME_CHARS = 512
"""Longest id or name that a client may give: they come back in events, which have to stay small."""


def _finite(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    if not math.isfinite(value) or abs(value) > MAX_NUMBER:
        raise ValueError(f"must be finite and within {MAX_NUMBER} of 0")
    return value


MAX_NUMBER = 2**53
"""Whole numbers up to here are exact in JSON, and a time rounded to them can be written again."""

Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]

Number = Annotated[float, BeforeValidator(_finite)]
"""A finite JSON number of a sensible size; booleans are not numbers."""


class Command(BaseModel):
    """Base: unknown keys are tolerated and dropped, known ones must have the right type; null is absence."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)
    event_id: Name | None = None


class SessionUpdate(Command):
    """Open a session, or change an open one. ``session``: the object of contract section 1.3."""

    type: Literal["session.update"]
    session: dict[str, Any]


class VoiceHint(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    is_speech: bool | None = None
    speech_probability: Number | None = None
    probability: Number | None = None
    silence_rms: Number | None = None


class InputAppend(Command):
    """Media for the open input unit: audio, frames, or both.

    ``audio`` is base64; ``video_frames`` a list of base64 JPEG or PNG, at most two, which is checked with its
    entries (``invalid_video_frames``). ``frame_times_ms`` are capture
    times on the media clock (first frame 0), ``frame_ids`` the client's ids, both matching the frames.
    Times in ms, rates in Hz. ``container`` is set for the aliases whose default payload is a WAV file.
    """

    type: Literal["input_audio_buffer.append"]
    audio: str | None = None
    format: str | dict[str, Any] | None = None
    sample_rate_hz: Number | None = None
    container: str | None = None
    video_frames: Any = None
    frame_times_ms: list[Number] | None = None
    frame_ids: list[Name] | None = None
    max_slice_nums: Any = None
    operation_id: Name | None = None
    duration_ms: Number | None = None
    audio_start_ms: Number | None = None
    audio_end_ms: Number | None = None
    is_speech: bool | None = None
    speech: bool | None = None
    speech_probability: Number | None = None
    vad: VoiceHint | None = None
    overlap_action: str | None = None
    force_barge_in: bool = False
    force_listen: bool = False
    transcript: str | None = None
    overlap_silence_rms: Number | None = None


class InputCommit(Command):
    type: Literal["input_audio_buffer.commit"]
    final: bool = True
    create_response: bool = False
    is_speech: bool | None = None
    duration_ms: Number | None = None


class InputClear(Command):
    type: Literal["input_audio_buffer.clear"]


class TextAppend(Command):
    type: Literal["input.text.append"]
    text: str


class InputCancel(Command):
    type: Literal["input.cancel"]


class ResponseCreate(Command):
    type: Literal["response.create"]
    response: dict[str, Any] = Field(default_factory=dict)


class ResponseCancel(Command):
    type: Literal["response.cancel"]
    response_id: Name | None = None


class OutputClear(Command):
    type: Literal["output_audio_buffer.clear"]
    response_id: Name | None = None


class BargeIn(Command):
    type: Literal["barge_in"]


class PlaybackAck(Command):
    """How much of a response was played, cumulative, in ms; ``committed_ms`` defaults to ``played_ms``."""

    type: Literal["playback.ack"]
    played_ms: Number
    committed_ms: Number | None = None
    response_id: Name | None = None
    item_id: Name | None = None


class ItemCreate(Command):
    type: Literal["conversation.item.create"]
    item: dict[str, Any]
    previous_item_id: Name | None = None


class ItemRetrieve(Command):
    type: Literal["conversation.item.retrieve"]
    item_id: Name | None = None


class ItemDelete(Command):
    type: Literal["conversation.item.delete"]
    item_id: Name | None = None


class ItemTruncate(Command):
    type: Literal["conversation.item.truncate"]
    item_id: Name | None = None
    content_index: int = 0
    audio_end_ms: Number


class TurnSignal(Command):
    """A local turn-state hint; never starts a response."""

    type: Literal["turn.signal"]
    event: Name
    payload: dict[str, Any] = Field(default_factory=dict)


class Heartbeat(Command):
    type: Literal["session.heartbeat"]


class SessionClose(Command):
    type: Literal["session.close"]
    reason: Name = "client_close"


class EventAck(Command):
    """Trims the journal. The value is checked against the journal, so any JSON is let through here."""

    type: Literal["session.event_ack"]
    server_event_seq: Any = None


class SessionResume(Command):
    """First message of a resuming socket. The handshake checks the fields (``invalid_session_resume``)."""

    type: Literal["session.resume"]
    session_id: Any = None
    resume_token: Any = None
    last_received_server_event_seq: Any = 0


AnyCommand = Annotated[
    SessionUpdate
    | InputAppend
    | InputCommit
    | InputClear
    | TextAppend
    | InputCancel
    | ResponseCreate
    | ResponseCancel
    | OutputClear
    | BargeIn
    | PlaybackAck
    | ItemCreate
    | ItemRetrieve
    | ItemDelete
    | ItemTruncate
    | TurnSignal
    | Heartbeat
    | SessionClose
    | EventAck
    | SessionResume,
    Field(discriminator="type"),
]
_COMMANDS: TypeAdapter[AnyCommand] = TypeAdapter(AnyCommand)

ALIASES: Mapping[str, str] = {
    "session.create": "session.update",
    "input.audio.append": "input_audio_buffer.append",
    "push_chunk": "input_audio_buffer.append",
    "input.commit": "input_audio_buffer.commit",
    "input_text.append": "input.text.append",
    "push_text": "input.text.append",
    "audio.playback_ack": "playback.ack",
    "signal_turn": "turn.signal",
    "close_session": "session.close",
    "close": "session.close",
}
"""Other names of a command. An alias behaves as its canonical name, its own defaults apart."""

SIGNAL_REDIRECTS = frozenset(
    {
        "input.cancel",
        "response.cancel",
        "barge_in",
        "conversation.item.create",
        "conversation.item.delete",
        "conversation.item.truncate",
    }
)
"""``turn.signal`` events that are really commands: their payload becomes the command's fields."""

NAMES: frozenset[str] = frozenset(
    model.model_fields["type"].annotation.__args__[0]  # type: ignore[union-attr]
    for model in Command.__subclasses__()
)


def parse_command(frame: str | bytes) -> AnyCommand:
    """One inbound text frame as a typed command."""
    return command_of(decode_frame(frame))


def decode_frame(frame: str | bytes) -> Any:
    """The JSON value of one inbound text frame."""
    raw = frame.encode() if isinstance(frame, str) else frame
    if len(raw) > MAX_FRAME_BYTES:
        raise TooLarge(f"The event has {len(raw)} bytes; the limit is {MAX_FRAME_BYTES}.")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The frame is not valid JSON: {error}.", code="invalid_json") from error
    # Few frames have so many brackets that they have to be looked at.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _too_deep(value):
        raise InvalidRequest(f"An event has at most {MAX_DEPTH} levels.", code="bad_event")
    return value


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def command_of(event: Any) -> AnyCommand:
    """A decoded JSON value as a typed command."""
    given = event.get("event_id") if isinstance(event, dict) else None
    event_id = given if isinstance(given, str) and len(given) <= MAX_NAME_CHARS else None
    if isinstance(given, str) and event_id is None:
        raise InvalidRequest(
            f"An event_id has at most {MAX_NAME_CHARS} characters.", code="bad_event", param="event_id"
        )
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise InvalidRequest(
            "An event is an object with a string `type`.", code="bad_event", param="type", event_id=event_id
        )
    event = _redirected(event)
    name = event["type"]
    canonical = ALIASES.get(name, name)
    if canonical not in NAMES:
        raise InvalidRequest(f"Unknown event type {name!r}.", code="unknown_event", event_id=event_id)
    given_fields = _NORMALISE.get(canonical, _as_is)(name, event)
    fields = {key: value for key, value in given_fields.items() if value is not None}  # null says nothing
    fields |= {"type": canonical, "event_id": event_id}
    try:
        return _COMMANDS.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(str(p) for p in first["loc"][1:]) or None
        raise InvalidRequest(
            f"{canonical}: {param}: {first['msg']}.", code="bad_event", param=param, event_id=event_id
        ) from error


def _redirected(event: dict[str, Any]) -> dict[str, Any]:
    """A ``turn.signal`` that names a command is that command, its payload the fields."""
    if ALIASES.get(event["type"], event["type"]) != "turn.signal":
        return event
    named, payload = event.get("event"), event.get("payload")
    if not isinstance(named, str) or named not in SIGNAL_REDIRECTS:
        return event
    return {**(payload if isinstance(payload, dict) else {}), "type": named}


def _as_is(_name: str, event: dict[str, Any]) -> dict[str, Any]:
    return event


def _session_body(_name: str, event: dict[str, Any]) -> dict[str, Any]:
    """The body is ``session`` if that is an object, else the whole event without its envelope."""
    body = event.get("session")
    if not isinstance(body, dict):
        body = {k: v for k, v in event.items() if k not in {"type", "event_id", "session"}}
    return {"session": body}


def _append_fields(name: str, event: dict[str, Any]) -> dict[str, Any]:
    fields = dict(event)
    for ours, theirs in (
        ("audio", "delta"),
        ("format", "input_audio_format"),
        ("sample_rate_hz", "sample_rate"),
        ("duration_ms", "audio_duration_ms"),
        ("overlap_action", "overlap"),
        ("transcript", "text"),
    ):
        if fields.get(ours) is None and fields.get(theirs) is not None:
            fields[ours] = fields[theirs]
    single = fields.get("frame_id")
    if fields.get("frame_ids") is None and single is not None:
        fields["frame_ids"] = single if isinstance(single, list) else [single]
    if name != "input_audio_buffer.append" and fields.get("format") is None:
        fields["container"] = "wav"
    # hints of the wrong type are no hints, as in the reference
    for hint in ("is_speech", "speech"):
        if not isinstance(fields.get(hint), bool):
            fields.pop(hint, None)
    for hint in ("transcript", "overlap_action"):
        if not isinstance(fields.get(hint), str):
            fields.pop(hint, None)
    vad = fields.pop("vad", None)
    if isinstance(vad, dict):
        fields["vad"] = {k: v for k, v in vad.items() if k != "is_speech" or isinstance(v, bool)}
    return fields


def _commit_fields(name: str, event: dict[str, Any]) -> dict[str, Any]:
    wanted = event.get("response_create")
    if wanted is None:
        wanted = event.get("create_response")
    if wanted is None:
        wanted = name == "input.commit"
    return {**event, "create_response": wanted}


_NORMALISE: Mapping[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    "session.update": _session_body,
    "input_audio_buffer.append": _append_fields,
    "input_audio_buffer.commit": _commit_fields,
}
