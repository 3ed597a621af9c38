"""Delivery: from an emitted event to what the attached socket writes next, and what a resuming one gets.

A session without a socket of its own (driven over HTTP) has no delivery: its readers subscribe. With one,
events wait in the outbox, get their number and their place in the journal when they are taken, and while
nobody is attached they go straight into the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.session.attachment import Attachments, Seat, Ticket, Tokens
from orchestrator.session.effects import Effect
from orchestrator.session.events import (
    ErrorEvent,
    Event,
    OutputAudioDelta,
    OutputTranscriptDelta,
    ResponseDone,
    ResyncRequired,
    SessionClosed,
    SessionCreated,
    SessionExpired,
)
from orchestrator.session.facts import EventsReserved, SocketSeated
from orchestrator.session.journal import Journal
from orchestrator.session.outbox import Outbox, Outgoing, may_use_reserve
from orchestrator.session.playback import PlaybackBook
from orchestrator.session.projection import Projection
from orchestrator.session.shared import Shared
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted
from orchestrator.wire.server import Written

UNNUMBERED = (SessionCreated, ResyncRequired)
MAX_CLOSING_BYTES = 4096
EVENTS_RESERVED = 1000
"""Numbers of events that are reserved at a time."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A resuming socket's answer: its ticket and the events it missed, numbered.

    ``missed`` is ``None`` when they are no longer all there: it must resynchronise, and nothing changed.
    ``gap``: an earlier process had the rest; it is gone with that process, and what is remembered is not.
    """

    ticket: Ticket | None
    missed: tuple[Written, ...] | None
    gap: bool = False
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Invitation:
    """Presented like a resume: a secret that is shown once, and the number of the newest event."""

    token: str
    last_seq: int


class Delivery:
    """:param tokens: makes resume tokens
    :param book: learns what was sent
    :param former: of a session that goes on after its process: its events are numbered on from there
    """

    def __init__(
        self, shared: Shared, tokens: Tokens, book: PlaybackBook, former: Seat | None = None
    ) -> None:
        limits = shared.limits
        self._shared = shared
        self._book = book
        self._projection = Projection(shared.session_id, shared.ids)
        self._outbox = Outbox(limits.outbox)
        self._ceiling = self._numbered_on = former.ceiling if former else 0
        self._journal = Journal(limits.journal_bytes, limits.journal_ttl_s, head=self._ceiling)
        self._resync_told = False
        resumable = shared.capabilities.supports_session_resume
        self.attachments = Attachments(tokens, resumable=resumable, former=former)
        self.begun = bool(former and former.generation)
        """The session has had a socket."""
        self.overflowed = False
        """An event did not fit: only errors, bad endings and the end are taken from now on."""

    @property
    def attached(self) -> bool:
        return self.attachments.attached

    # --- in ------------------------------------------------------------------------------------------------

    def admit(self, event: Event) -> None:
        """Queue an event for the socket. ``overflowed`` is set when it does not fit."""
        if not self.begun:
            if isinstance(event, OutputAudioDelta):
                self._sent(event)  # a reader has it as soon as it is emitted
            return
        if isinstance(event, SessionClosed | SessionExpired):
            self._outbox.close_with(self._closing(event))
        elif not self.overflowed or may_use_reserve(event):
            out = self._outgoing(event)
            if out is not None and not self._outbox.offer(out):
                self.overflowed = True
        if not self.attached:
            while self.take():
                pass
        self._reserve()

    def void(self, response_ids: Iterable[str]) -> None:
        """Take back the audio of these responses that was not sent yet, with the words it says."""
        names = frozenset(response_ids)
        self._outbox.remove(lambda event: _is_audio(event) and _response_of(event) in names)

    def fail_last_ending(self, code: str) -> str | None:
        """Turn the newest normal ending that is still queued into a failed one; its response's id."""

        def normal(event: Event) -> bool:
            return isinstance(event, ResponseDone) and not may_use_reserve(event)

        def failed(event: Event) -> Outgoing:
            assert isinstance(event, ResponseDone)
            out = self._outgoing(replace(event, status="failed", reason=code, heard=False))
            assert out is not None
            return out

        return _response_of(self._outbox.replace_last(normal, failed))

    # --- out -----------------------------------------------------------------------------------------------

    def take(self) -> tuple[Written, ...]:
        """What the socket writes next, numbered and journaled; empty when nothing waits."""
        out = self._outbox.take()
        if out is None:
            return ()
        if isinstance(out.event, OutputAudioDelta):
            self._sent(out.event)
        if isinstance(out.event, UNNUMBERED):
            return (out.written,)
        written = self._journal.write(self._shared.now, out.written, out.size)
        if self._journal.overflowed and not self._resync_told:
            self._resync_told = True
            resync = ResyncRequired(self._shared.session_id, "journal_overflow")
            first = self._projection.written(resync, self._shared.config)
            assert first is not None
            return (first, written)
        return (written,)

    def waiting(self) -> bool:
        return len(self._outbox) > 0

    def ack(self, seq: Any) -> None:
        self._journal.ack(seq)

    # --- sockets -------------------------------------------------------------------------------------------

    def open(self) -> Ticket:
        """The session's first socket."""
        self.begun = True
        ticket = self.attachments.open()
        self._seated()
        return ticket

    def resume(self, token: Any, after: Any) -> Resumed:
        """Attach a socket that presents a token and the number of the last event it has."""
        if not isinstance(token, str) or not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise InvalidRequest(
                "session.resume needs session_id, resume_token and last_received_server_event_seq from 0 on",
                code="invalid_session_resume",
            )
        self.attachments.check(token)
        gap = after < self._numbered_on
        after = max(after, self._numbered_on)
        entries = self._journal.replay(self._shared.now, after)
        if entries is None:
            return Resumed(None, None)
        ticket = self.attachments.resume(token)
        self.begun = True
        self._seated()
        return Resumed(ticket, tuple(entry.written for entry in entries), gap)

    def invite(self) -> Invitation:
        return Invitation(self.attachments.invite(), self._journal.head)

    def detach(self, generation: int) -> bool:
        """A socket is gone; False when it had lost its place before."""
        if not self.attachments.detach(generation):
            return False
        while self.take():
            pass
        return True

    def statistics(self) -> dict[str, Any]:
        return {
            "outbox": self._outbox.statistics(),
            "journal": self._journal.statistics(),
            "attached": self.attached,
            "generation": self.attachments.generation,
        }

    # --- what outlives the process -------------------------------------------------------------------------

    def _seated(self) -> None:
        self._shared.record(SocketSeated(self.attachments.generation, self.attachments.token_hash))
        self._reserve()

    def _reserve(self) -> None:
        """Long before the numbers are used, so that the record is durable by then."""
        if self.begun and self._journal.head + len(self._outbox) + EVENTS_RESERVED // 2 > self._ceiling:
            self._ceiling = self._journal.head + len(self._outbox) + EVENTS_RESERVED
            self._shared.record(EventsReserved(self._ceiling))

    # --- parts ---------------------------------------------------------------------------------------------

    def _outgoing(self, event: Event) -> Outgoing | None:
        written = self._projection.written(event, self._shared.config)
        return None if written is None else Outgoing(event, written, written.size)

    def _closing(self, event: SessionClosed | SessionExpired) -> Outgoing:
        out = self._outgoing(event)
        assert out is not None
        if out.size <= MAX_CLOSING_BYTES:
            return out
        short = self._outgoing(replace(event, reason="close_details_exceed_output_limit"))
        assert short is not None
        return short

    def _sent(self, event: OutputAudioDelta) -> None:
        ledger = self._book.get(event.response_id)
        if ledger is not None:
            self._book.advance(self._shared.now)
            ledger.send(event.duration_ms)


def backpressure() -> ErrorEvent:
    return ErrorEvent(
        ResourceExhausted("the client reads too slowly; the session ends", code="output_backpressure")
    )


def _is_audio(event: Event) -> bool:
    return isinstance(event, OutputAudioDelta) or (isinstance(event, OutputTranscriptDelta) and event.paired)


def _response_of(event: Event | None) -> str | None:
    return getattr(event, "response_id", None)
