"""Outward events of a session, one class per event of the wire contract (``type`` is its name).

Events are immutable snapshots. ``fence`` is projected as the sibling ``duplex{epoch, turn_id}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from orchestrator.session.backend import DEFAULT_OUTPUT, PLAYBACK, TRANSCRIPT_SO_FAR
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.playback import Cursors
from orchestrator.wire.audio import AudioFormat
from orchestrator.wire.errors import VigilError


class Delivery(StrEnum):
    """What may happen to an event when its reader is slow.

    ``media``: may be dropped and counted; ``content``: kept while its reader lives; ``terminal``: always
    delivered once accepted.
    """

    MEDIA = "media"
    CONTENT = "content"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class Event:
    type: ClassVar[str]
    delivery: ClassVar[Delivery] = Delivery.CONTENT


# --- session ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionCreated(Event):
    """First event of a session that a socket opened; it is not sequenced.

    :param session: the session object of the contract
    """

    type: ClassVar[str] = "session.created"
    session: Mapping[str, Any]
    attachment_generation: int
    resume_token: str | None


@dataclass(frozen=True, slots=True)
class SessionUpdated(Event):
    """``planned_tick``: the tick at which what the model is told changes; ``None``: nothing is to come."""

    type: ClassVar[str] = "session.updated"
    session: Mapping[str, Any]
    planned_tick: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAck(Event):
    type: ClassVar[str] = "session.heartbeat_ack"
    session_id: str


@dataclass(frozen=True, slots=True)
class ResyncRequired(Event):
    """From here on nothing is sequenced and the session cannot be resumed; not sequenced itself."""

    type: ClassVar[str] = "session.resync_required"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SessionClosed(Event):
    """The last event of a session."""

    type: ClassVar[str] = "session.closed"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SessionExpired(Event):
    """The last event of a session that ran out of time instead of being closed."""

    type: ClassVar[str] = "session.expired"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorEvent(Event):
    type: ClassVar[str] = "error"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    error: VigilError


# --- conversation items ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemAdded(Event):
    type: ClassVar[str] = "conversation.item.added"
    previous_item_id: str | None
    item: Item


@dataclass(frozen=True, slots=True)
class ItemCreated(Event):
    type: ClassVar[str] = "conversation.item.created"
    previous_item_id: str | None
    item: Item


@dataclass(frozen=True, slots=True)
class ItemDone(Event):
    type: ClassVar[str] = "conversation.item.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    previous_item_id: str | None
    item: Item


@dataclass(frozen=True, slots=True)
class ItemRetrieved(Event):
    type: ClassVar[str] = "conversation.item.retrieved"
    item: Item


@dataclass(frozen=True, slots=True)
class ItemDeleted(Event):
    type: ClassVar[str] = "conversation.item.deleted"
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemTruncated(Event):
    type: ClassVar[str] = "conversation.item.truncated"
    item_id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptionCompleted(Event):
    """:param duration_ms: of the audio that was transcribed"""

    type: ClassVar[str] = "conversation.item.input_audio_transcription.completed"
    item_id: str
    transcript: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptionDelta(Event):
    """More of what the user is saying; only for clients that ask for it."""

    type: ClassVar[str] = TRANSCRIPT_SO_FAR
    item_id: str
    delta: str


# --- input ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserSpeechStarted(Event):
    type: ClassVar[str] = "input_audio_buffer.speech_started"
    item_id: str
    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class UserSpeechStopped(Event):
    type: ClassVar[str] = "input_audio_buffer.speech_stopped"
    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class InputCommitted(Event):
    """:param details: flags that are set: ``is_speech``, ``no_response``, ``overlap_ack`` ..."""

    type: ClassVar[str] = "input_audio_buffer.committed"
    previous_item_id: str | None
    item_id: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InputCleared(Event):
    type: ClassVar[str] = "input_audio_buffer.cleared"


@dataclass(frozen=True, slots=True)
class OverlapDecided(Event):
    type: ClassVar[str] = "overlap.decision"
    fence: Fence
    policy: str
    action: str
    reason: str
    duration_ms: float
    overlap_speech_ms: float
    buffered: bool
    deferred: bool


@dataclass(frozen=True, slots=True)
class TurnSignalled(Event):
    type: ClassVar[str] = "turn.event"
    fence: Fence
    event: str
    turn_state: str


# --- responses -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseEvent(Event):
    """Base of everything that belongs to one response."""

    fence: Fence
    response_id: str


@dataclass(frozen=True, slots=True)
class ResponseCreated(ResponseEvent):
    type: ClassVar[str] = "response.created"
    modalities: tuple[str, ...]
    metadata: Mapping[str, Any]
    output_format: AudioFormat = DEFAULT_OUTPUT


@dataclass(frozen=True, slots=True)
class OutputItemAdded(ResponseEvent):
    type: ClassVar[str] = "response.output_item.added"
    item: Item


@dataclass(frozen=True, slots=True)
class ContentPartAdded(ResponseEvent):
    type: ClassVar[str] = "response.content_part.added"
    item_id: str
    content_index: int
    part: ContentPart


@dataclass(frozen=True, slots=True)
class ResponseSpeak(ResponseEvent):
    """The model chose to speak. ``score``: P(speak), if known."""

    type: ClassVar[str] = "response.speak"
    item_id: str
    score: float | None


@dataclass(frozen=True, slots=True)
class ResponseListen(Event):
    """The model chose to listen. ``response_id`` is set only when this ends that response."""

    type: ClassVar[str] = "response.listen"
    fence: Fence
    reason: str
    model_listen: bool
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutputTextDelta(ResponseEvent):
    type: ClassVar[str] = "response.output_text.delta"
    item_id: str
    content_index: int
    delta: str


@dataclass(frozen=True, slots=True)
class OutputTextDone(ResponseEvent):
    type: ClassVar[str] = "response.output_text.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item_id: str
    content_index: int
    text: str


@dataclass(frozen=True, slots=True)
class FunctionArguments(ResponseEvent):
    type: ClassVar[str] = "response.function_call_arguments.delta"
    item_id: str
    call_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class FunctionArgumentsDone(ResponseEvent):
    type: ClassVar[str] = "response.function_call_arguments.done"
    item_id: str
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class OutputAudioDelta(ResponseEvent):
    """One chunk of speech.

    :param pcm: PCM16 mono; ``rate`` Hz
    :param duration_ms: of this chunk; ``total_ms``: of the response up to its end
    :param marks: (characters spoken so far, audio end in ms) that this chunk adds
    :param cursors: the ledger as the chunk was made
    :param last: none of the response follows
    """

    type: ClassVar[str] = "response.output_audio.delta"
    delivery: ClassVar[Delivery] = Delivery.MEDIA
    item_id: str
    pcm: bytes
    rate: int
    duration_ms: int
    total_ms: int
    marks: tuple[tuple[int, int], ...]
    cursors: Cursors
    last: bool = False


@dataclass(frozen=True, slots=True)
class OutputTranscriptDelta(ResponseEvent):
    """Follows every audio chunk; stands alone (``paired`` False) where text came without audio."""

    type: ClassVar[str] = "response.output_audio_transcript.delta"
    item_id: str
    delta: str
    paired: bool


@dataclass(frozen=True, slots=True)
class OutputAudioDone(ResponseEvent):
    type: ClassVar[str] = "response.output_audio.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item_id: str


@dataclass(frozen=True, slots=True)
class OutputTranscriptDone(ResponseEvent):
    type: ClassVar[str] = "response.output_audio_transcript.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item_id: str
    transcript: str


@dataclass(frozen=True, slots=True)
class OutputCleared(ResponseEvent):
    """Playback of the response stops; what was sent and not played is void."""

    type: ClassVar[str] = "output_audio_buffer.cleared"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL


@dataclass(frozen=True, slots=True)
class ContentPartDone(ResponseEvent):
    type: ClassVar[str] = "response.content_part.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item_id: str
    content_index: int
    part: ContentPart


@dataclass(frozen=True, slots=True)
class OutputItemDone(ResponseEvent):
    type: ClassVar[str] = "response.output_item.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item: Item


@dataclass(frozen=True, slots=True)
class ResponseDone(ResponseEvent):
    """Exactly one per created response.

    :param status: completed, incomplete, cancelled or failed
    :param reason: why it did not complete
    :param item: the output item as it ended; a cancelled one holds what was heard of its speech
    :param heard: it entered history
    :param stage_metrics: what the engine counted for it, by stage
    :param request_metrics: how soon it began by the engine's own clock
    """

    type: ClassVar[str] = "response.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    status: str
    reason: str | None
    item: Item
    heard: bool
    cursors: Cursors
    metadata: Mapping[str, Any]
    stage_metrics: Mapping[str, Mapping[str, Any]]
    request_metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.item.content)


@dataclass(frozen=True, slots=True)
class PlaybackAcknowledged(Event):
    """:param truncate: a truncation, not an ack, moved the ledger"""

    type: ClassVar[str] = "playback.acknowledged"
    fence: Fence
    item_id: str | None
    cursors: Cursors
    truncate: bool
    history_committed: bool


@dataclass(frozen=True, slots=True)
class RateLimitsUpdated(Event):
    type: ClassVar[str] = "rate_limits.updated"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL


# --- Vigil's own -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickEvent(Event):
    """One decision as recorded; ``record`` has the columns of ``decisions.jsonl``."""

    type: ClassVar[str] = "vigil.tick"
    delivery: ClassVar[Delivery] = Delivery.MEDIA
    fence: Fence
    record: Mapping[str, Any]
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class DelegationEvent(Event):
    type: ClassVar[str] = "vigil.delegation"
    fence: Fence
    delegation_id: str
    status: str
    question: str
    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NoticeEvent(Event):
    type: ClassVar[str] = "vigil.notice"
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PlaybackPaused(Event):
    """What is played pauses, or goes on. ``response_id``: the newest response that is made or played."""

    type: ClassVar[str] = PLAYBACK
    fence: Fence
    response_id: str | None
    paused: bool
