"""``EngineLink``: one session of a full-duplex engine, as the backend that pairs with it sees it.

The link keeps the socket alive: it heartbeats, acknowledges the engine's events, and takes a lost socket up
again with the engine's resume token. What it cannot mend it says once, with ``LinkEnded``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class LinkError(Exception):
    """A command was refused, or the link cannot carry it out.

    :param code: the engine's own code, or one of ``LinkCode``
    :param retryable: the same command may succeed later
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable


class LinkCode(StrEnum):
    """Codes of our own side of the link."""

    CONNECT_FAILED = "connect_failed"
    """Nothing listens there, or the handshake was refused."""
    TIMEOUT = "timeout"
    """The engine did not answer before the deadline."""
    LINK_LOST = "link_lost"
    """The socket is gone and was not taken up again."""
    LINK_CLOSED = "link_closed"
    """The session is over; no command is taken."""
    BAD_ENGINE_EVENT = "bad_engine_event"
    """The engine said something that breaks the contract."""
    BACKPRESSURE = "input_backpressure"
    """More is unwritten than the link holds."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Where the engine is, and how long each wait may take (seconds).

    :param url: ``ws://host:port`` or ``http://host:port``; the path defaults to ``/v1/realtime``
    :param api_key: sent as a bearer token
    :param open_s: from the opening event to ``session.created`` (engines warm up while they accept)
    :param reply_s: any command that is answered; ``close_s`` the engine's word that it closed
    :param write_s: one frame may wait that long for the socket
    :param resume_s: in all, for taking a lost socket up again
    :param silence_s: no event and no heartbeat answer for that long: the socket counts as lost
    :param event_queue: events that wait for the reader; then the socket is not read on
    """

    url: str
    model: str
    api_key: str | None = None
    connect_s: float = 10.0
    open_s: float = 180.0
    reply_s: float = 10.0
    write_s: float = 10.0
    close_s: float = 10.0
    heartbeat_s: float = 30.0
    silence_s: float = 65.0
    resume_s: float = 20.0
    event_queue: int = 1024


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """What the engine said when the session opened. ``session``: its whole session object."""

    session_id: str
    session: Mapping[str, Any]
    resumable: bool

    @property
    def capabilities(self) -> Mapping[str, Any]:
        found = self.session.get("capabilities")
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class EngineUnit:
    """One append towards the engine, never more than one unit.

    :param pcm: in ``format`` at ``rate_hz``, or ``None``; ``frames``: JPEG or PNG bytes
    :param end_ms: where it ends on the stream's own clock; ``duration_ms`` of its audio
    :param is_speech: what is known of it; ``None`` leaves it to the engine
    """

    pcm: bytes | None = None
    frames: tuple[bytes, ...] = ()
    format: str = "pcm16"
    rate_hz: int = 16000
    duration_ms: int = 0
    end_ms: int = 0
    is_speech: bool | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)


# --- what the engine says -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseCreated:
    response_id: str


@dataclass(frozen=True, slots=True)
class Speaking:
    """The model chose to speak (``response.speak``)."""

    response_id: str


@dataclass(frozen=True, slots=True)
class Listening:
    """The model chose to listen. With a ``response_id`` that response is over; in turn mode an engine may
    speak on after it, and ``ResponseDone`` is the end. ``metadata`` as it came."""

    response_id: str | None
    reason: str | None
    model_listen: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """:param pcm: PCM16 little-endian mono at ``rate_hz``
    :param marks: (characters spoken so far, audio end in ms), cumulative for the response
    :param end_of_turn: the model's turn is over with this chunk
    """

    response_id: str
    pcm: bytes
    rate_hz: int
    marks: tuple[tuple[int, int], ...] = ()
    end_of_turn: bool = False


@dataclass(frozen=True, slots=True)
class SpokenText:
    """Words of the response: ``spoken`` rides its audio (a transcript), otherwise it is text alone."""

    response_id: str
    text: str
    spoken: bool = True


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """``status``: completed, cancelled, failed, incomplete."""

    response_id: str
    status: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """The engine's own figures by stage, passed through unread: of a response the sums so far, else a unit's.

    ``request``: how soon it answered by its own clock, each value once
    """

    response_id: str | None
    stages: Mapping[str, Mapping[str, Any]]
    request: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the engine understood of the user's speech."""

    item_id: str
    transcript: str


@dataclass(frozen=True, slots=True)
class UserSpeech:
    """The engine's detector: the user began (``started``) or stopped, at ``at_ms`` of the stream's clock."""

    started: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class InputCommitted:
    item_id: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model called a tool of the client's."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EngineFault:
    """An error for which no command waits. ``event_id``: the append it is about, as ``append`` named it."""

    code: str
    message: str
    event_id: str | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The socket is gone; the link is taking it up again. Nothing is resent that was written."""

    reason: str


@dataclass(frozen=True, slots=True)
class LinkResumed:
    """The socket is back. ``unconfirmed``: event ids of appends that were written before it was lost and of
    which the engine had given no sign; it may have got them or not."""

    unconfirmed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkEnded:
    """The last event. ``confirmed``: the engine itself said that the session is gone, so its slot is free.

    :param reason: of the engine's closing event, or a ``LinkCode``
    """

    reason: str
    confirmed: bool


EngineEvent = (
    ResponseCreated
    | Speaking
    | Listening
    | AudioChunk
    | SpokenText
    | ResponseDone
    | StageMetrics
    | Heard
    | UserSpeech
    | InputCommitted
    | ToolCall
    | EngineFault
    | LinkLost
    | LinkResumed
    | LinkEnded
)


class EngineLink(Protocol):
    """One engine session. Commands are written in call order; all but ``events`` raise ``LinkError``."""

    async def open(self, session: Mapping[str, Any]) -> OpenedSession:
        """Open with this session object. An engine that is full refuses with ``resource_exhausted``."""

    async def append(self, unit: EngineUnit) -> str:
        """Return the event id once the unit is wholly written; while the socket is lost, wait for it.

        A unit that was written in part when the socket broke counts as not written and is raised as
        ``link_lost`` where the socket does not come back.
        """

    async def commit(self, *, create_response: bool) -> None:
        """Seal the turn; returns when the engine said ``committed``."""

    async def create_response(self, options: Mapping[str, Any]) -> None:
        """Returns when the engine created a response, or chose to listen."""

    async def clear(self) -> None:
        """Drop input that the engine has not used; returns when it said so."""

    async def add_item(self, item: Mapping[str, Any]) -> None:
        """``conversation.item.create``."""

    async def update(self, session: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the engine's new session object, or raise what it refused with."""

    async def cancel(self, response_id: str | None) -> None:
        """Ask for the end of a response; returns when that is written. The response's terminal comes as an
        event. Not running any more is fine."""

    async def playback(self, response_id: str, played_ms: int, committed_ms: int) -> None:
        """Never waits. What is not yet written is replaced by what is newer; too late is fine."""

    async def close(self, reason: str) -> bool:
        """Idempotent. True when the engine said that the session is gone; a false one may be tried again."""

    def events(self) -> AsyncIterator[EngineEvent]:
        """The single stream of events; ends after ``LinkEnded``."""

    def statistics(self) -> Mapping[str, Any]: ...


class Links(Protocol):
    """Makes links: the seam at which a backend is tested, and where a fresh session is opened."""

    def __call__(self, options: LinkOptions) -> EngineLink: ...
