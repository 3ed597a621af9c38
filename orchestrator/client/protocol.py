"""The client's side of the protocol, sans-IO: what to send first, what to acknowledge, when to resume.

::

    ClientError             code, message: the server refused something
    `- SessionLost          the session is over and can't be resumed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.wire.server import (
    ErrorEvent,
    ResyncRequired,
    ServerEvent,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SessionReplaced,
    SessionResumed,
    UnknownEvent,
    parse_event,
)

FATAL_RESUME_CODES = frozenset(
    {
        "invalid_session_resume",
        "session_resume_expired",
        "unsupported_session_resume",
        "invalid_resume_token",
        "session_resume_conflict",
    }
)
"""Answers to ``session.resume`` after which another attempt can't succeed."""
GOES_ON = frozenset({"shutdown", "lease_lost"})
"""Why a process ends a session that goes on after its restart, or in another one."""


class ClientError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class SessionLost(ClientError):
    pass


@dataclass(frozen=True, slots=True)
class ConnectionResumed:
    """A new socket carries the session on. ``gap``: the server restarted; some events may be missing."""

    type: str = field(default="connection.resumed", init=False)
    attachment_generation: int
    gap: bool = False


Incoming = ServerEvent | UnknownEvent | ConnectionResumed


@dataclass(slots=True)
class Received:
    """What one frame means: events for the application, in order, and a message to send back."""

    events: list[Incoming] = field(default_factory=list)
    reply: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Invitation:
    """What ``POST /v1/sessions/{id}/attach-token`` answers: lets one socket join a session."""

    session_id: str
    attach_token: str
    last_received_server_event_seq: int


class ClientProtocol:
    """One session over any number of sockets. Events come out once and in order, whatever is replayed.

    :param invitation: joins that session instead of opening one
    """

    def __init__(self, session: dict[str, Any], invitation: Invitation | None = None) -> None:
        self._opening = session
        self._seen = invitation.last_received_server_event_seq if invitation else 0
        self._token: str | None = invitation.attach_token if invitation else None
        self._resuming = invitation is not None
        self._held: list[Incoming] = []
        self.session_id: str | None = invitation.session_id if invitation else None
        self.session: dict[str, Any] = {}
        self.closed: str | None = None

    @property
    def ready(self) -> bool:
        """True once the session is open and no resume is under way."""
        return self.session_id is not None and not self._resuming

    @property
    def can_resume(self) -> bool:
        return self._token is not None and (self.closed is None or self.closed in GOES_ON)

    def first_message(self) -> dict[str, Any]:
        """What to send on a fresh socket: the opening, or the resume of the session we have."""
        if self.session_id is None:
            return {"type": "session.update", "session": self._opening}
        self._resuming = True
        self._held.clear()
        return {
            "type": "session.resume",
            "session_id": self.session_id,
            "resume_token": self._token,
            "last_received_server_event_seq": self._seen,
        }

    def receive(self, payload: dict[str, Any]) -> Received:
        """One decoded frame.

        :raises ClientError: the server refused to open the session
        :raises SessionLost: the server refused to resume it for good
        """
        event, seq = parse_event(payload)
        received = Received()
        if isinstance(event, ErrorEvent) and not self.ready:
            self._refused(event)
            return received
        if seq is not None:
            if seq <= self._seen:
                return received
            self._seen = seq
            received.reply = {"type": "session.event_ack", "server_event_seq": seq}
        if isinstance(event, SessionResumed):
            self._resumed(event, received)
        elif self._resuming:
            self._held.append(event)
        else:
            self._note(event)
            received.events.append(event)
        return received

    def _refused(self, event: ErrorEvent) -> None:
        code, message = str(event.error.get("code")), str(event.error.get("message"))
        if self.session_id is None:
            raise ClientError(code, message)
        if code in FATAL_RESUME_CODES:
            self._token = None
            raise SessionLost(code, message)

    def _resumed(self, event: SessionResumed, received: Received) -> None:
        self._resuming, self.closed = False, None
        self._token, self.session = event.resume_token, event.session
        received.events.append(
            ConnectionResumed(attachment_generation=event.attachment_generation, gap=bool(event.journal_gap))
        )
        received.events.extend(self._held)
        self._held.clear()

    def _note(self, event: Incoming) -> None:
        if isinstance(event, SessionCreated):
            self.session_id, self.session = str(event.session.get("id")), event.session
            self._token = event.resume_token
        elif isinstance(event, ResyncRequired):
            self._token = None
        elif isinstance(event, SessionClosed | SessionExpired):
            self.closed = event.reason
        elif isinstance(event, SessionReplaced):
            self.closed = "session_replaced"
