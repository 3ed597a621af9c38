"""The engine's time: real seconds, sped up."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class ScaledClock:
    """Seconds that pass ``scale`` times as fast as real ones: at 100 a unit of 1 s takes 10 ms."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def now(self) -> float:
        return time.monotonic() * self.scale

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.scale)
