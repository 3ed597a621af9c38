"""What real answers say of an engine, and how long to wait before asking it again."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from typing import Protocol


class Clock(Protocol):
    """Injected time: monotonic seconds, and waiting."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class EngineState(StrEnum):
    """``up``: answers in time; ``late``: missed a deadline or failed lately; ``wedged``: takes requests and
    answers none; ``down``: no connection, or nobody there who serves us."""

    UP = "up"
    LATE = "late"
    WEDGED = "wedged"
    DOWN = "down"


class Circuit:
    """Judges an engine by its real answers alone; nothing here asks ``/health``.

    :param wedged_after: deadlines missed, or faults of its own, in a row before the engine counts as wedged
    """

    def __init__(self, clock: Clock, wedged_after: int = 3) -> None:
        self._clock = clock
        self._wedged_after = wedged_after
        self._down = False
        self._missed_at = float("-inf")
        self.misses = 0
        self.denied = False
        """Whoever is there takes no request of ours."""
        self.last_answer_at: float | None = None

    @property
    def state(self) -> EngineState:
        if self._down:
            return EngineState.DOWN
        if self.misses >= self._wedged_after:
            return EngineState.WEDGED
        return EngineState.LATE if self.misses else EngineState.UP

    def answered(self) -> None:
        """A whole answer arrived, or a typed refusal: someone is at home."""
        self._down = self.denied = False
        self.misses = 0
        self.last_answer_at = self._clock.now()

    def missed(self, started_at: float) -> None:
        """A deadline of a request passed, or the engine failed. Requests that waited side by side miss once,
        not once each."""
        self._down = self.denied = False
        if not self.misses or started_at >= self._missed_at:
            self.misses += 1
            self._missed_at = self._clock.now()

    def lost(self, *, denied: bool = False) -> None:
        """The connection was refused or broke, or whoever is there does not serve us."""
        self._down, self.denied = True, denied
        self.misses = 0


class Backoff:
    """Waits that double from ``min_s`` to ``max_s`` seconds."""

    def __init__(self, clock: Clock, min_s: float = 0.5, max_s: float = 5.0) -> None:
        self._clock = clock
        self._max = max_s
        self._next = min_s

    async def wait(self) -> None:
        delay = self._next
        self._next = min(self._max, delay * 2)
        await self._clock.sleep(delay)
