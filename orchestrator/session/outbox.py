"""The outbox: events admitted and not yet written to the client's socket. Bounded in bytes and in number.

The normal budget serves everything. A reserve of its own serves only errors and responses that end failed or
cancelled, so that a client that is too slow can still be told so. The closing event has a slot to itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.session.events import ErrorEvent, Event, ResponseDone
from orchestrator.wire.server import Written


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Bytes are those of compact JSON, base64 included."""

    max_bytes: int = 2 * 1024 * 1024
    max_events: int = 512
    reserve_bytes: int = 64 * 1024
    reserve_events: int = 8


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One event with its wire form.

    :param written: as it goes over the wire, the sequence number apart; ``size``: its bytes
    """

    event: Event
    written: Written
    size: int


@dataclass(slots=True)
class _Budget:
    max_bytes: int
    max_events: int
    bytes: int = 0
    events: int = 0

    def fits(self, size: int) -> bool:
        return self.bytes + size <= self.max_bytes and self.events < self.max_events

    def charge(self, size: int) -> None:
        self.bytes += size
        self.events += 1

    def refund(self, size: int) -> None:
        self.bytes -= size
        self.events -= 1


@dataclass(slots=True)
class _Queued:
    out: Outgoing
    budget: _Budget = field(repr=False)


def may_use_reserve(event: Event) -> bool:
    """Errors, and responses that end failed or cancelled."""
    if isinstance(event, ResponseDone):
        return event.status in ("failed", "cancelled")
    return isinstance(event, ErrorEvent)


class Outbox:
    """First in, first out; the session core offers, the one writer of the socket takes."""

    def __init__(self, limits: OutboxLimits) -> None:
        self._normal = _Budget(limits.max_bytes, limits.max_events)
        self._reserve = _Budget(limits.reserve_bytes, limits.reserve_events)
        self._queue: deque[_Queued] = deque()
        self._closure: Outgoing | None = None

    def __len__(self) -> int:
        return len(self._queue) + (self._closure is not None)

    def offer(self, out: Outgoing) -> bool:
        """Admit an event; False when it does not fit and was not kept."""
        for budget in (self._normal, self._reserve):
            if budget is self._reserve and not may_use_reserve(out.event):
                break
            if budget.fits(out.size):
                budget.charge(out.size)
                self._queue.append(_Queued(out, budget))
                return True
        return False

    def close_with(self, out: Outgoing) -> None:
        """The session's last event; it leaves after everything else and always has its place."""
        self._closure = out

    def take(self) -> Outgoing | None:
        """The next event, no longer charged; ``None`` when nothing waits."""
        if self._queue:
            queued = self._queue.popleft()
            queued.budget.refund(queued.out.size)
            return queued.out
        out, self._closure = self._closure, None
        return out

    def remove(self, condition: Callable[[Event], bool]) -> tuple[Event, ...]:
        """Take out every queued event that the condition names; the closing event stays."""
        removed: list[Event] = []
        kept: deque[_Queued] = deque()
        for queued in self._queue:
            if condition(queued.out.event):
                queued.budget.refund(queued.out.size)
                removed.append(queued.out.event)
            else:
                kept.append(queued)
        self._queue = kept
        return tuple(removed)

    def replace_last(
        self, condition: Callable[[Event], bool], change: Callable[[Event], Outgoing]
    ) -> Event | None:
        """Change the newest queued event that the condition names, in its place; what it was before.

        Its charge stays: a changed ending is about as large as it was.
        """
        for queued in reversed(self._queue):
            before = queued.out.event
            if condition(before):
                changed = change(before)
                queued.out = Outgoing(changed.event, changed.written, queued.out.size)
                return before
        return None

    def statistics(self) -> dict[str, int]:
        return {
            "events": len(self),
            "bytes": self._normal.bytes,
            "reserve_events": self._reserve.events,
            "reserve_bytes": self._reserve.bytes,
        }
