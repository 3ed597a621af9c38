"""Pools of engines that exist in name alone."""

from __future__ import annotations

import asyncio

from bridges.duplex_client.link import LinkError, LinkOptions
from orchestrator.backends.native.seat import Seat
from orchestrator.engines.places import EngineSpec
from orchestrator.engines.pool import EnginePool
from tests.fakes.clock import VirtualClock


def spec(name: str = "a", max_sessions: int = 2, *, rolls_over: bool = False) -> EngineSpec:
    return EngineSpec(name, LinkOptions(f"ws://{name}:8000", "m"), max_sessions, rolls_over)


def pool_of(*specs: EngineSpec) -> tuple[EnginePool, VirtualClock]:
    clock = VirtualClock()
    return EnginePool(specs or (spec(),), clock), clock


async def opened(pool: EnginePool, session_id: str, *, rollover: bool = False) -> Seat:
    seat = await pool.take(session_id, rollover=rollover)
    seat.opened()
    return seat


class SlowEngine:
    """``open_on`` of an engine that prepares until it is told to go on. ``refuse``: codes by engine."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.refuse: dict[str, str] = {}
        self.asked: list[str] = []

    async def __call__(self, seat: Seat) -> str:
        self.asked.append(seat.engine)
        await self.go.wait()
        if code := self.refuse.get(seat.engine):
            raise LinkError(code, "refused")
        return seat.engine
