"""What a client may be sent: every server event as a typed model, and its text.

Events are built with GA names; ``orchestrator.wire.dialect`` renames them for clients of the older
dialect. An event is written as JSON once and gets its ``server_event_seq`` at the last moment, see
``Written.numbered``. ``None`` fields are left out, except where the protocol wants a null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.wire.items import AudioPart, Item, Json, Mark, Response, TextPart


@dataclass(frozen=True, slots=True)
class Written:
    """An event as it goes over the wire. ``text``: the JSON of one object that has fields."""

    type: str
    text: str

    @property
    def size(self) -> int:
        """In UTF-8 bytes."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())

    @property
    def value(self) -> Json:
        """What ``text`` says."""
        value: Json = orjson.loads(self.text)
        return value

    def numbered(self, seq: int) -> Written:
        """The same with its ``server_event_seq``."""
        return Written(self.type, f'{self.text[:-1]},"server_event_seq":{seq}}}')


class ServerEvent(BaseModel):
    """Base. ``sequenced`` events are journaled and carry ``server_event_seq``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sequenced: ClassVar[bool] = True
    nulls: ClassVar[frozenset[str]] = frozenset()
    type: str
    event_id: str
    duplex: Mark | None = None
    vllm_omni: Json | None = None

    def written(self) -> Written:
        text = self.model_dump_json(exclude_none=True)
        for name in self.nulls:
            if getattr(self, name) is None:
                text = f'{text[:-1]},"{name}":null}}'
        return Written(self.type, text)


class SessionCreated(ServerEvent):
    sequenced: ClassVar[bool] = False
    type: Literal["session.created"] = "session.created"
    session: Json
    attachment_generation: int | None = None
    resume_token: str | None = None


class SessionUpdated(ServerEvent):
    """``planned_tick``: the tick from which the model is told of the change, where it isn't yet."""

    type: Literal["session.updated"] = "session.updated"
    session: Json
    planned_tick: int | None = None


class SessionResumed(ServerEvent):
    """``journal_gap``: the server restarted; events between may be missing, memory is not."""

    sequenced: ClassVar[bool] = False
    type: Literal["session.resumed"] = "session.resumed"
    session_id: str
    session: Json
    attachment_generation: int
    resume_token: str
    journal_gap: bool | None = None


class SessionReplaced(ServerEvent):
    sequenced: ClassVar[bool] = False
    type: Literal["session.replaced"] = "session.replaced"
    session_id: str
    attachment_generation: int


class ResyncRequired(ServerEvent):
    sequenced: ClassVar[bool] = False
    type: Literal["session.resync_required"] = "session.resync_required"
    session_id: str
    reason: Literal["journal_gap", "journal_overflow"]


class SessionClosed(ServerEvent):
    type: Literal["session.closed"] = "session.closed"
    session_id: str
    reason: str
    event: Json = {}


class SessionExpired(ServerEvent):
    type: Literal["session.expired"] = "session.expired"
    session_id: str
    reason: str


class HeartbeatAck(ServerEvent):
    type: Literal["session.heartbeat_ack"] = "session.heartbeat_ack"
    session_id: str


class ResponseCreated(ServerEvent):
    type: Literal["response.created"] = "response.created"
    response_id: str
    response: Response


class ItemAdded(ServerEvent):
    nulls: ClassVar[frozenset[str]] = frozenset({"previous_item_id"})
    type: Literal["conversation.item.added"] = "conversation.item.added"
    previous_item_id: str | None = None
    item: Item


class ItemCreated(ServerEvent):
    nulls: ClassVar[frozenset[str]] = frozenset({"previous_item_id"})
    type: Literal["conversation.item.created"] = "conversation.item.created"
    previous_item_id: str | None = None
    item: Item


class ItemDone(ServerEvent):
    nulls: ClassVar[frozenset[str]] = frozenset({"previous_item_id"})
    type: Literal["conversation.item.done"] = "conversation.item.done"
    previous_item_id: str | None = None
    item: Item


class ItemRetrieved(ServerEvent):
    type: Literal["conversation.item.retrieved"] = "conversation.item.retrieved"
    item: Item


class ItemDeleted(ServerEvent):
    type: Literal["conversation.item.deleted"] = "conversation.item.deleted"
    item_id: str
    event: Json = {}


class ItemTruncated(ServerEvent):
    type: Literal["conversation.item.truncated"] = "conversation.item.truncated"
    item_id: str
    content_index: int
    audio_end_ms: int
    event: Json = {}


class TranscriptionCompleted(ServerEvent):
    """``usage``: ``{"type": "duration", "seconds": s}``; the SDK wants it."""

    type: Literal["conversation.item.input_audio_transcription.completed"] = (
        "conversation.item.input_audio_transcription.completed"
    )
    item_id: str
    content_index: int = 0
    transcript: str
    usage: Json


class TranscriptionDelta(ServerEvent):
    type: Literal["conversation.item.input_audio_transcription.delta"] = (
        "conversation.item.input_audio_transcription.delta"
    )
    item_id: str
    content_index: int = 0
    delta: str


class _OfResponse(ServerEvent):
    response_id: str
    item_id: str
    output_index: int = 0
    content_index: int = 0


class OutputItemAdded(ServerEvent):
    type: Literal["response.output_item.added"] = "response.output_item.added"
    response_id: str
    output_index: int = 0
    item: Item


class OutputItemDone(ServerEvent):
    type: Literal["response.output_item.done"] = "response.output_item.done"
    response_id: str
    output_index: int = 0
    item: Item


class ContentPartAdded(_OfResponse):
    type: Literal["response.content_part.added"] = "response.content_part.added"
    part: TextPart | AudioPart


class ContentPartDone(_OfResponse):
    type: Literal["response.content_part.done"] = "response.content_part.done"
    part: TextPart | AudioPart


class ResponseSpeak(_OfResponse):
    type: Literal["response.speak"] = "response.speak"
    metadata: Json = {}


class TextDelta(_OfResponse):
    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str


class TextDone(_OfResponse):
    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str


class AudioDelta(_OfResponse):
    """``delta`` is base64; ``metadata.audio_duration_ms`` is cumulative for the response."""

    type: Literal["response.output_audio.delta"] = "response.output_audio.delta"
    delta: str
    format: str
    sample_rate_hz: int
    metadata: Json = {}


class AudioDone(_OfResponse):
    type: Literal["response.output_audio.done"] = "response.output_audio.done"


class TranscriptDelta(_OfResponse):
    type: Literal["response.output_audio_transcript.delta"] = "response.output_audio_transcript.delta"
    delta: str
    metadata: Json | None = None


class TranscriptDone(_OfResponse):
    type: Literal["response.output_audio_transcript.done"] = "response.output_audio_transcript.done"
    transcript: str


class ResponseDone(ServerEvent):
    type: Literal["response.done"] = "response.done"
    response_id: str
    response: Response


class RateLimits(ServerEvent):
    type: Literal["rate_limits.updated"] = "rate_limits.updated"
    rate_limits: list[Json] = []


class ResponseListen(ServerEvent):
    """The model chose to listen. With a ``response_id`` it ends that response on the client."""

    type: Literal["response.listen"] = "response.listen"
    session_id: str
    epoch: int
    response: Json
    response_id: str | None = None


class SpeechStarted(ServerEvent):
    type: Literal["input_audio_buffer.speech_started"] = "input_audio_buffer.speech_started"
    audio_start_ms: int
    item_id: str


class SpeechStopped(ServerEvent):
    type: Literal["input_audio_buffer.speech_stopped"] = "input_audio_buffer.speech_stopped"
    audio_end_ms: int
    item_id: str


class InputCommitted(ServerEvent):
    nulls: ClassVar[frozenset[str]] = frozenset({"previous_item_id"})
    type: Literal["input_audio_buffer.committed"] = "input_audio_buffer.committed"
    previous_item_id: str | None = None
    item_id: str
    event: Json = {}


class InputCleared(ServerEvent):
    type: Literal["input_audio_buffer.cleared"] = "input_audio_buffer.cleared"


class OutputCleared(ServerEvent):
    type: Literal["output_audio_buffer.cleared"] = "output_audio_buffer.cleared"
    response_id: str


class FunctionArgumentsDelta(ServerEvent):
    type: Literal["response.function_call_arguments.delta"] = "response.function_call_arguments.delta"
    response_id: str
    item_id: str
    output_index: int = 0
    call_id: str
    delta: str


class FunctionArgumentsDone(ServerEvent):
    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    response_id: str
    item_id: str
    output_index: int = 0
    call_id: str
    name: str
    arguments: str


class PlaybackAcknowledged(ServerEvent):
    type: Literal["playback.acknowledged"] = "playback.acknowledged"
    event: Json


class OverlapDecision(ServerEvent):
    type: Literal["overlap.decision"] = "overlap.decision"
    session_id: str
    epoch: int
    policy: str
    action: Literal["listen", "drop", "barge_in"]
    reason: str
    metadata: Json


class TurnEvent(ServerEvent):
    type: Literal["turn.event"] = "turn.event"
    session_id: str
    event: str
    turn_state: str
    epoch: int


class Tick(ServerEvent):
    """One decision, compact; sent only when ``session.include`` lists it. Times in ms, counts in tokens.

    ``unit``: of the stream, where the model hears one: what is decided is whether it listens or speaks.
    """

    type: Literal["vigil.tick"] = "vigil.tick"
    tick: int
    unit: int | None = None
    media_time_ms: int
    action: Literal["silence", "response", "delegate"]
    reason: str | None = None
    score: float | None = None
    frames: int
    coalesced: int
    cached_tokens: int | None = None
    expected_cached_tokens: int | None = None
    prompt_tokens: int | None = None
    latency_ms: float | None = None


class Delegation(ServerEvent):
    type: Literal["vigil.delegation"] = "vigil.delegation"
    delegation_id: str
    status: Literal["started", "merged", "completed", "failed", "cancelled"]
    question: str
    text: str | None = None
    error: str | None = None


class Notice(ServerEvent):
    type: Literal["vigil.notice"] = "vigil.notice"
    code: str
    message: str


class Playback(ServerEvent):
    """What is played is to pause at once, or to go on; sent only when ``session.include`` lists it.

    The user may have begun to speak. A pause ends with ``resume``, or when what was paused is cancelled.
    """

    type: Literal["vigil.playback"] = "vigil.playback"
    response_id: str | None = None
    action: Literal["pause", "resume"]


class ErrorEvent(ServerEvent):
    """``error``: the body of a ``VigilError``. Transport errors before a session are not sequenced."""

    type: Literal["error"] = "error"
    error: Json


class UnknownEvent(BaseModel):
    """An event of a type that this version does not know: kept whole, for clients newer servers talk to."""

    model_config = ConfigDict(frozen=True)
    type: str
    payload: Json


def _event_types() -> dict[str, type[ServerEvent]]:
    models = [*ServerEvent.__subclasses__(), *_OfResponse.__subclasses__()]
    return {m.model_fields["type"].default: m for m in models if m is not _OfResponse}


_TYPES = _event_types()


def parse_event(payload: Json) -> tuple[ServerEvent | UnknownEvent, int | None]:
    """The typed event of a decoded frame and its ``server_event_seq``; ``ValueError`` if it has no type.

    A known type whose fields do not fit comes back as ``UnknownEvent`` too: a client must not fall over
    a newer server.
    """
    fields = dict(payload)
    seq = fields.pop("server_event_seq", None)
    seq = seq if isinstance(seq, int) else None
    name = fields.get("type")
    if not isinstance(name, str):
        raise ValueError("a server event has a string `type`")
    model = _TYPES.get(name)
    if model is not None:
        try:
            return model.model_validate(fields), seq
        except ValidationError:
            pass
    return UnknownEvent(type=name, payload=payload), seq
