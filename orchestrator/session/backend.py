"""``SessionBackend``: the one seam between the session core and the two kinds of model.

The core never awaits: the runtime's actor calls these methods as effects and feeds what ``outputs``
yields back into the core. Every output carries the fence that was current when its work *started*.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact
from orchestrator.session.units import InputUnit
from orchestrator.wire.audio import AudioFormat, Codec


class Action(StrEnum):
    """What a model decided at one tick."""

    SILENCE = "silence"
    RESPONSE = "response"
    DELEGATE = "delegate"


class SpeechPolicy(StrEnum):
    """What becomes of answers that are still being spoken, or wait for it, when the next one begins: each is
    spoken in its turn; the newest cuts the others off; the newest goes before others that wait. Their text is
    never withheld."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Server-side voice activity detection. Times in ms; ``threshold`` is a probability."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    min_speech_duration_ms: int = 96
    create_response: bool = True


DEFAULT_INPUT = AudioFormat(Codec.PCM16, 16000)
DEFAULT_OUTPUT = AudioFormat(Codec.PCM16)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a client may set. ``None`` means the profile's default.

    :param model: served model name
    :param persona: key of a persona in the prompt pack
    :param instructions: free text added to the persona
    :param opening_text: what the user says before anything else
    :param max_pixels: area of the largest picture the model is shown
    :param auto_response: True: every tick may speak; False: turn mode
    :param modalities: output the client wants: text, audio; what the backend lacks is left out
    :param max_output_tokens: of one response
    :param input_format: of audio that states none itself
    :param output_format: its rate counts for G.711 only; PCM leaves at the model's own rate
    :param turn_detection: the server's own detector, or ``None``
    :param overlap_policy: ``listen_only`` or ``barge_in_on_speech``
    :param speech_policy: ``None``: the service's
    :param playback_policy: ``ack_only`` or ``wall_clock``
    :param include: what the client asks to be sent beside the contract's events (``vigil.tick``)
    :param extra_body: keys for the model behind the backend, passed on as they are
    :param echo: other keys that the client sent, returned to it unread
    """

    model: str
    persona: str | None = None
    instructions: str | None = None
    opening_text: str | None = None
    max_pixels: int | None = None
    auto_response: bool | None = None
    language: str | None = None
    seed: int | None = None
    modalities: tuple[str, ...] = ("text", "audio")
    voice: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    speed: float | None = None
    input_format: AudioFormat = DEFAULT_INPUT
    output_format: AudioFormat = DEFAULT_OUTPUT
    turn_detection: TurnDetection | None = None
    overlap_policy: str = "listen_only"
    overlap_short_ack_ms: float = 700.0
    overlap_barge_in_ms: float = 1200.0
    overlap_silence_rms: float = 0.003
    speech_policy: SpeechPolicy | None = None
    playback_policy: str = "ack_only"
    idle_timeout_s: float = 300.0
    include: tuple[str, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    echo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend offers; projected on the wire as the ``capabilities`` object.

    Modalities are named as on the wire: ``audio``, ``video``.

    :param output_modalities: what it can answer with
    :param auto_response: the profile's mode where the client sets none
    :param holds_turn_input: in turn mode, input waits in the session until it is committed; otherwise
        the backend records it as it comes
    :param seals_first: a turn that is answered is told to be committed when the backend has committed it
    :param concurrent_turns: a next turn may begin while the last one's audio still comes
    :param text_follows_audio: text and audio of a response advance together
    :param native_turn_policy: the model itself decides when to speak
    :param input_rate_hz: rate of the float32 samples it takes
    :param transcribes: it hears by transcripts: sound goes to it as it comes, also over a response; what the
        user says is told as ``UserTranscript``, and then asked like a query
    :param client_tools: tools that the client offers reach the model
    :param response_options: a single response may have settings of its own
    :param response_create: a response can be asked for; otherwise the model alone decides
    :param exact_input: the one format and rate that clients may send; ``None``: any, it is converted
    :param max_transcript_bytes: of a response's text, UTF-8, kept in its item and its ending
    :param takes_opening: the user's opening words go to the model with the session's other settings;
        otherwise they are asked like any others
    :param reserved_keys: keys of ``extra_body`` that only the server may set; ``name*`` reserves a prefix
    """

    chunk_period_ms: int
    required_input_modalities: tuple[str, ...] = ()
    optional_input_modalities: tuple[str, ...] = ()
    supports_barge_in: bool = True
    supports_image_input: bool = True
    supports_text_only_turn: bool = True
    supports_session_resume: bool = True
    target_barge_in_latency_ms: int | None = None
    max_frames_per_append: int = 2
    output_modalities: tuple[str, ...] = ("text",)
    auto_response: bool = True
    holds_turn_input: bool = False
    seals_first: bool = False
    concurrent_turns: bool = False
    text_follows_audio: bool = True
    native_turn_policy: bool = True
    external_turn_signal: bool = True
    client_commit: bool = True
    audio_truncate: bool = True
    input_modes: tuple[str, ...] = ("reencode_context", "replace_latest_chunk")
    adapter_patterns: tuple[str, ...] = ("context_replay",)
    signal_sources: tuple[str, ...] = ("client_event", "server_policy", "model_native")
    engine_traits: tuple[str, ...] = ()
    stage_handoff_transport: str | None = None
    max_sessions: int = 2
    input_rate_hz: int = 16000
    transcribes: bool = False
    client_tools: bool = False
    response_options: bool = False
    response_create: bool = True
    exact_input: AudioFormat | None = None
    max_transcript_bytes: int = 64 * 1024
    takes_opening: bool = False
    reserved_keys: tuple[str, ...] = ()

    @property
    def video_alone(self) -> bool:
        """A frame without audio is input on its own."""
        return "audio" not in self.required_input_modalities


# --- outputs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickStarted:
    """A decision is in flight. ``operations``: the appends whose frames ride it, and the ``item_id`` of a
    query that rides it for the first time (a query's operation id is its item id)."""

    fence: Fence
    tick: int
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The model chose. Comes before any text of the same tick. ``score``: P(speak), if known.

    ``reason`` says why a silence is silent: ``gated``, ``model``, ``deduplicated``, ``unhealthy``,
    ``engine_late``, ``continuation_limit``. ``final``: the open response ends with it, ``TurnEnd`` follows.
    """

    fence: Fence
    tick: int
    action: Action
    score: float | None = None
    reason: str | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class TextDelta:
    fence: Fence
    text: str


@dataclass(frozen=True, slots=True)
class AudioDelta:
    """PCM16 mono. ``text_marks``: (characters spoken so far, audio end in ms) pairs, cumulative."""

    fence: Fence
    pcm: bytes
    rate: int
    text_marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The session's detector heard the user begin. ``audio_start_ms``: on the input's own clock."""

    fence: Fence
    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user stopped; ``audio_end_ms`` includes the silence that told so."""

    fence: Fence
    audio_end_ms: int


PLAYBACK = "vigil.playback"
"""In a session's ``include``: its client pauses what it plays, and goes on with it, when it is told to."""


@dataclass(frozen=True, slots=True)
class PlaybackHeld:
    """The user may be speaking: what is being played is to pause until that is known; or is to go on.

    Only for clients that ask for ``PLAYBACK``; no fence moves.
    """

    fence: Fence
    held: bool


TRANSCRIPT_SO_FAR = "conversation.item.input_audio_transcription.delta"
"""In a session's ``include``: its client wants the words of speech that is still going on."""


@dataclass(frozen=True, slots=True)
class UserTranscript:
    """What the user said. Not ``final``: more of what is being said now, in pieces that are not taken back.

    :param start_ms, end_ms: of the speech on the input's own clock, if known
    """

    fence: Fence
    text: str
    final: bool
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the engine counted for a unit of the response of this fence; comes before its ``TurnEnd``.

    ``stages``: names of the contract's stage metrics by stage, ``"0"`` for a single one. ``whole``: they are
    those of the response so far, and no longer added up. ``request``: see ``response_request_metrics`` there.
    """

    fence: Fence
    stages: Mapping[str, Mapping[str, Any]]
    whole: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)


MAX_OUTPUT_TOKENS = "max_output_tokens"


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The open response of this fence is over. ``status``: completed, incomplete or failed; ``reason``:
    ``MAX_OUTPUT_TOKENS`` where the engine ended it as long as it may be."""

    fence: Fence
    status: str = "completed"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TickTimes:
    """When a tick came where, in monotonic seconds.

    :param admitted: its newest frame was recorded; without frames, when it began
    :param due: nothing but its turn at the engine kept it from beginning
    :param asked: its request was ready, and what it shows durable; ``None``: the engine was not asked
    :param first_token: of the answer; ``answered``: its end
    :param judged: it was settled what comes of it
    """

    admitted: float
    due: float
    begun: float
    judged: float
    asked: float | None = None
    first_token: float | None = None
    answered: float | None = None


@dataclass(frozen=True, slots=True)
class TickDone:
    """One tick is finished, whatever came of it: the record behind ``decisions.jsonl`` and ``vigil.tick``.

    :param operations: operations of ``TickStarted`` that are now answered (failed, if ``error_code`` is set)
    :param record: plain values, one per column of ``decisions.jsonl``
    :param times: of a tick that a backend measures so
    """

    fence: Fence
    tick: int
    operations: tuple[str, ...]
    record: Mapping[str, Any]
    error_code: str | None = None
    times: TickTimes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Delegation:
    """A background question changed state: started, merged, completed, failed, cancelled."""

    fence: Fence
    delegation_id: str
    status: str
    question: str
    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model calls a tool of the client's; ``arguments`` as JSON text."""

    fence: Fence
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the client should know: engine_lost, engine_recovered, rolled_over, unhealthy_output ..."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The backend could not do what was asked. ``fatal``: the session cannot go on."""

    fence: Fence
    code: str
    message: str
    fatal: bool = False
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


BackendOutput = (
    TickStarted
    | Decision
    | TextDelta
    | AudioDelta
    | SpeechStarted
    | SpeechStopped
    | PlaybackHeld
    | UserTranscript
    | Metrics
    | TurnEnd
    | TickDone
    | Delegation
    | ToolCalled
    | Notice
    | Failed
    | Closed
)


class SessionBackend(Protocol):
    """One model behind one session. All methods may raise ``orchestrator.wire.errors.VigilError``."""

    def capabilities(self) -> Capabilities: ...

    async def open(self, config: SessionConfig) -> None:
        """Prepare everything; nothing is admitted before this returns."""

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        """Take the unit or raise and keep nothing of it. A completed or in-flight id is not taken twice."""

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        """Hand over a conversation fact that the session owns (query, what was heard)."""

    async def commit(self, fence: Fence, create_response: bool) -> None:
        """Seal the turn. ``create_response``: words are wanted (turn mode, ``response.create``)."""

    async def update(self, config: SessionConfig) -> int | None:
        """Apply a new configuration, all or nothing. What the model is told changes at the next early
        handover: returns the tick meant for it, ``None`` where nothing is left to wait for."""

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        """Abort work of ``cancelled``. Refused, releasing nothing, unless ``next_fence`` is newer."""

    async def clear(self) -> None:
        """Drop input that was taken and not used yet; what is recorded for good stays."""

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        """How far a response was played; ``fence``: that of its outputs."""

    async def close(self, reason: str) -> None:
        """Idempotent; returns when nothing of this session runs any more."""

    def outputs(self) -> AsyncIterator[BackendOutput]:
        """The single stream of outputs; ends after ``Closed``."""


class Clock(Protocol):
    """Injected time. ``now``: monotonic seconds; ``wall_ms``: Unix milliseconds."""

    def now(self) -> float: ...

    def wall_ms(self) -> int: ...

    async def sleep(self, seconds: float) -> None: ...


Ids = Callable[[str], str]
"""``ids("resp")`` gives a fresh unguessable id with that prefix."""


class FactLog(Protocol):
    """The session's one append-only log of facts, as a writer sees it (implemented by ``memory.store``).

    Entries are ``{"seq", "at_ms", "kind", "data"}``; ``seq`` starts at 1 and has no gaps.
    """

    def append(self, kind: str, data: Mapping[str, Any]) -> int:
        """Add a fact, return its seq. Never blocks; durability follows at the next ``flush``."""

    async def flush(self, seq: int | None = None) -> None:
        """Return when everything appended so far is durable, or all up to ``seq``."""


class TickPermits(Protocol):
    """Who may use the engine now. Implemented by the runtime, one per engine; live before background."""

    async def live(self, session_id: str) -> None:
        """Wait for this session's turn to run a live tick; pair with ``done``."""

    async def background(self, session_id: str, kind: str, *, beside: bool = False) -> None:
        """Wait for a moment without a live tick (``kind``: prewarm goes before summary); pair with ``done``.

        Where live ticks leave none, it comes after the next one that starts. ``beside``: this work is of use
        only while a live tick runs, so it waits for none but those that wait themselves.
        """

    def read(self, session_id: str, kind: str) -> None:
        """The engine has read the prompt of this background work and writes now, beside all else."""

    def done(self, session_id: str, kind: str = "live") -> None:
        """Give one permit of that kind back."""
