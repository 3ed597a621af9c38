"""A clock that only moves when a test moves it, and ids that count."""

from __future__ import annotations

import asyncio
from collections import Counter

from evals.runs.moments import TapeClock


async def settle() -> None:
    """Return when no task can run any more without something from outside: time, a socket, the test."""
    loop = asyncio.get_running_loop()
    for _ in range(10_000):
        await asyncio.sleep(0)
        if not loop._ready:  # type: ignore[attr-defined]
            return
    raise AssertionError("the tasks never come to rest")


class VirtualClock(TapeClock):
    """Implements ``Clock``. ``advance`` wakes sleepers in the order of their deadlines."""

    @property
    def sleepers(self) -> int:
        """Sleeps that are still waited for."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Move time forward, letting tasks run at every deadline on the way."""
        target = self.now() + seconds
        await settle()
        while self.wake_one(target):
            await settle()
        self.move(target)
        await settle()


class CountingIds:
    """Implements ``Ids``: the prefix and a counter per prefix, in 32 hex digits."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, prefix: str) -> str:
        self._counts[prefix] += 1
        separator = "" if prefix.endswith(("-", "_")) else "_"
        return f"{prefix}{separator}{self._counts[prefix]:032x}"
