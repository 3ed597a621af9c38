"""One reader's bounded view of a session's events. A slow reader loses media first, then its place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from orchestrator.session.events import Delivery, Event, SessionClosed, SessionExpired


@dataclass(slots=True)
class Lost:
    """What slow readers did not get; one for all sessions of a process."""

    events: int = 0


class Subscription(AsyncIterator[Event]):
    """Iterate to read; iteration ends after the session's last event, or when the reader was too slow.

    The queue is owned by the session on its writing end and by one reader on the other. When it is
    full the oldest media event is dropped; when it holds none, everything but terminal events goes, and
    the subscription ends with ``reason`` ``output_backpressure``.

    :param lost: told of everything that is dropped
    """

    def __init__(self, maxsize: int, on_close: Callable[[Subscription], None], lost: Lost) -> None:
        self.reason: str | None = None
        self._lost = lost
        self._maxsize = maxsize
        self._on_close = on_close
        self._queue: deque[Event] = deque()
        self._ready = asyncio.Event()

    def offer(self, event: Event) -> None:
        """Queue an event; never blocks."""
        if self.reason is not None:
            return
        if len(self._queue) >= self._maxsize and not self._make_room(event):
            return
        self._queue.append(event)
        if isinstance(event, SessionClosed | SessionExpired):
            self._end(event.reason)
        self._ready.set()

    def close(self, reason: str = "reader_closed") -> None:
        """The reader is done; nothing more is kept for it."""
        self._queue.clear()
        self._end(reason)

    async def __anext__(self) -> Event:
        while not self._queue:
            if self.reason is not None:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._queue.popleft()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def statistics(self) -> dict[str, int]:
        return {"queued": len(self._queue), "maxsize": self._maxsize}

    def _make_room(self, event: Event) -> bool:
        """True when ``event`` may be queued."""
        for index, queued in enumerate(self._queue):
            if queued.delivery is Delivery.MEDIA:
                del self._queue[index]
                self._lost.events += 1
                return True
        if event.delivery is Delivery.MEDIA:
            self._lost.events += 1
            return False
        kept = [e for e in (*self._queue, event) if e.delivery is Delivery.TERMINAL]
        self._lost.events += len(self._queue) + 1 - len(kept)
        self._queue = deque(kept)
        self._end("output_backpressure")
        return False

    def _end(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self._on_close(self)
        self._ready.set()
