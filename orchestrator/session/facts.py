"""Facts that the session core adds to the log. Kinds differ from those that ``memory`` folds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from orchestrator.session.backend import SessionConfig


@dataclass(frozen=True, slots=True)
class SessionFact:
    kind: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """The ``data`` of the log entry: JSON-ready."""
        return asdict(self)


def config_data(config: SessionConfig) -> dict[str, Any]:
    """A configuration as the log keeps it: without the reference voice, which may be megabytes."""
    data = asdict(config)
    voice = voice_of(config)
    data["extra_body"] = {k: v for k, v in config.extra_body.items() if k not in voice}
    return data


def voice_of(config: SessionConfig) -> dict[str, Any]:
    """The keys of ``extra_body`` that hold a reference voice. It is given when a session opens, for good."""
    return {k: v for k, v in config.extra_body.items() if "ref_audio" in k}


@dataclass(frozen=True, slots=True)
class SessionOpened(SessionFact):
    kind: ClassVar[str] = "session_opened"
    session_id: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SessionConfigured(SessionFact):
    kind: ClassVar[str] = "session_configured"
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseStarted(SessionFact):
    kind: ClassVar[str] = "response_started"
    response_id: str
    epoch: int
    turn: int


@dataclass(frozen=True, slots=True)
class ResponseEnded(SessionFact):
    """``text`` is what was emitted, ``heard`` what reached the user and may enter history."""

    kind: ClassVar[str] = "response_ended"
    response_id: str
    status: str
    reason: str | None
    text: str
    heard: str


@dataclass(frozen=True, slots=True)
class EpochBegun(SessionFact):
    """A cancel took effect: output of an earlier epoch is stale from here on."""

    kind: ClassVar[str] = "epoch_begun"
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class SocketSeated(SessionFact):
    """A socket has the session. ``token_hash``: SHA-256, in hex, of the token that resumes it."""

    kind: ClassVar[str] = "socket_seated"
    generation: int
    token_hash: str | None


@dataclass(frozen=True, slots=True)
class EventsReserved(SessionFact):
    """No event is numbered above ``ceiling`` until another one is recorded."""

    kind: ClassVar[str] = "events_reserved"
    ceiling: int


@dataclass(frozen=True, slots=True)
class SessionEnded(SessionFact):
    kind: ClassVar[str] = "session_ended"
    reason: str
    error_code: str | None
