"""The journal: sequenced events kept until the client acknowledged them, so that it can resume.

Numbers start at 1 and have no gaps within a session. An event that does not fit ends sequencing for good:
it and all later ones go out without a number, and the session cannot be resumed any more.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from orchestrator.wire.errors import Conflict, InvalidRequest
from orchestrator.wire.server import Written


class JournalEntry(NamedTuple):
    """:param written: the event with its ``server_event_seq``"""

    seq: int
    at: float
    written: Written
    size: int


class Journal:
    """:param max_bytes: of entries not yet acknowledged
    :param ttl_s: seconds an entry is kept
    :param head: the last number given out, when a session goes on after a restart
    """

    def __init__(self, max_bytes: int = 8 * 1024 * 1024, ttl_s: float = 60.0, head: int = 0) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._entries: deque[JournalEntry] = deque()
        self._bytes = 0
        self.head = head
        self.boundary = head
        """The highest number that is no longer kept."""
        self.overflowed = False

    def write(self, now: float, event: Written, size: int) -> Written:
        """Number an event and keep it; returns what to write. Sets ``overflowed`` when it does not fit."""
        if self.overflowed:
            return event
        self._expire(now)
        if self._bytes + size > self._max_bytes:
            self.overflowed = True
            self._entries.clear()
            self._bytes = 0
            self.boundary = self.head
            return event
        self.head += 1
        numbered = event.numbered(self.head)
        self._entries.append(JournalEntry(self.head, now, numbered, size))
        self._bytes += size
        return numbered

    def ack(self, seq: Any) -> None:
        """Forget everything up to ``seq``. Raises ``invalid_event_ack``; old numbers do no harm."""
        if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
            raise InvalidRequest(
                "server_event_seq is a whole number from 0 on",
                code="invalid_event_ack",
                param="server_event_seq",
            )
        if seq > self.head:
            raise InvalidRequest(
                f"event {seq} has not been sent; the newest is {self.head}",
                code="invalid_event_ack",
                param="server_event_seq",
            )
        while self._entries and self._entries[0].seq <= seq:
            self._drop_oldest()

    def replay(self, now: float, after: int) -> tuple[JournalEntry, ...] | None:
        """Entries after number ``after``; ``None`` when they are no longer all there.

        Raises ``session_resume_conflict`` for a number that was never given out.
        """
        if after > self.head:
            raise Conflict(
                f"event {after} has not been sent; the newest is {self.head}",
                code="session_resume_conflict",
            )
        self._expire(now)
        if self.overflowed or after < self.boundary:
            return None
        return tuple(entry for entry in self._entries if entry.seq > after)

    def statistics(self) -> dict[str, int | bool]:
        return {
            "entries": len(self._entries),
            "bytes": self._bytes,
            "head": self.head,
            "overflowed": self.overflowed,
        }

    def _expire(self, now: float) -> None:
        while self._entries and now - self._entries[0].at > self._ttl_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        entry = self._entries.popleft()
        self._bytes -= entry.size
        self.boundary = entry.seq
