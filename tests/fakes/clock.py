"""A clock that only moves when a test moves it, and ids that count."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter


async def settle() -> None:
    """Return when no task can run any more without something from outside: time, a socket, the test."""
    loop = asyncio.get_running_loop()
    for _ in range(10_000):
        await asyncio.sleep(0)
        if not loop._ready:  # type: ignore[attr-defined]
            return
    raise AssertionError("the tasks never come to rest")


class VirtualClock:
    """Implements ``Clock``. ``advance`` wakes sleepers in the order of their deadlines."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    @property
    def sleepers(self) -> int:
        """Sleeps that are still waited for."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Move time forward, letting tasks run at every deadline on the way."""
        target = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self._now = due
                future.set_result(None)
                await settle()
        self._now = target
        await settle()


class CountingIds:
    """Implements ``Ids``: the prefix and a counter per prefix, in 32 hex digits."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, prefix: str) -> str:
        self._counts[prefix] += 1
        separator = "" if prefix.endswith(("-", "_")) else "_"
        return f"{prefix}{separator}{self._counts[prefix]:032x}"
