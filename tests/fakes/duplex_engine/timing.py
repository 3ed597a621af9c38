"""The engine's time, and that of whoever lives beside it in a test: real seconds, sped up."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

BEAT_S = 0.005
"""Real time between two looks at the machine's clock while somebody sleeps."""
MOST_S = 2 * BEAT_S
"""Real time that passes between two looks, at the most."""
LOOKS = 200
"""Turns of a loop that never rests, after which time passes all the same."""


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class ScaledClock:
    """Seconds that pass ``scale`` times as fast as real ones: at 100 a unit of 1 s takes 10 ms.

    They pass while the event loop has nothing to do, and never beyond a sleeper that is to wake: a process
    that the machine keeps waiting loses a few milliseconds, and what was sent at a time has come before the
    next. So a busy machine makes a test slower and no deadline in it shorter, for everybody who shares the
    clock. One event loop at a time. Implements ``Clock`` of every room.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._now = 0.0
        self._looked = time.monotonic()
        self._holds = 0
        self._began_ms = round(time.time() * 1000)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._beat: asyncio.Handle | None = None
        self._beat_at = 0.0
        self._looks = 0
        self._rested = False

    def now(self) -> float:
        if not self._sleepers:
            self._pass()
        return self._now

    def wall_ms(self) -> int:
        return self._began_ms + round(self.now() * 1000)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self.now() + seconds, next(self._count), future))
        if self._beat is None or loop.time() + self._left_s() < self._beat_at:
            self._arm()
        await future

    @contextmanager
    def held(self) -> Iterator[None]:
        """Time stands still: what happens in this block needs none of it."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._looked = time.monotonic()

    def _pass(self, until: float = float("inf")) -> None:
        looked, self._looked = self._looked, time.monotonic()
        if not self._holds:
            self._now = min(until, self._now + min(self._looked - looked, MOST_S) * self.scale)

    def _left_s(self) -> float:
        """Real time to the next look."""
        return min(max((self._sleepers[0][0] - self._now) / self.scale, 0.0), BEAT_S)

    def _arm(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        loop = asyncio.get_running_loop()
        left_s = BEAT_S if self._holds else self._left_s()
        self._beat_at = loop.time() + left_s
        self._beat = loop.call_later(left_s, self._wake)

    def _rests(self) -> bool:
        """The loop has had nothing else to do for a whole turn, in which it looked at its sockets."""
        busy = bool(getattr(asyncio.get_running_loop(), "_ready", ()))
        rests = self._looks >= LOOKS or (self._rested and not busy)
        self._rested = not busy
        self._looks = 0 if rests else self._looks + 1
        return rests

    def _wake(self) -> None:
        if not self._rests():
            self._beat = asyncio.get_running_loop().call_soon(self._wake)
            return
        self._rested, self._beat = False, None
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            return
        self._pass(self._sleepers[0][0])
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
        if self._sleepers:
            self._arm()
