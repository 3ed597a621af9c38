"""Time that goes by a tape, and the loop brought to rest between two of its moments."""

from __future__ import annotations

import asyncio
import heapq

QUIET_TURNS = 24
"""Turns of the loop without any sign of life after which nothing more comes by itself: longer than any chain
of tasks that wake one another without leaving one."""
_UNIX_MS = 1_700_000_000_000


class TapeClock:
    """Implements ``Clock``. Time moves when it is told to, and sleepers wake when they are told to."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return _UNIX_MS + round(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    def move(self, to: float) -> None:
        """Never back; nobody is woken by it."""
        self._now = max(self._now, to)

    def wake_one(self, until: float) -> bool:
        """Wake whoever is due first, and not after ``until``; False: nobody is."""
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self.move(due)
                future.set_result(None)
                return True
        return False


class Pulse:
    """Counts signs of life, so that it can be told when there are no more."""

    def __init__(self) -> None:
        self._beats = 0

    def beat(self) -> None:
        self._beats += 1

    async def rest(self) -> None:
        """Return when the tasks have come to rest: nothing more happens without something from outside."""
        quiet, beats = 0, self._beats
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            quiet = 0 if self._beats != beats else quiet + 1
            beats = self._beats


class Turnstile:
    """Lets what comes from outside into a session one by one, each when the one before has had its effect.

    So nothing hangs on which of two answers came a turn of the loop earlier, and all of it can happen again.
    """

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Return when it is the caller's turn; what it does before it waits again comes first."""
        async with self._lock:
            await self._pulse.rest()
