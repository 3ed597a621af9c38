"""The engine is judged by real answers, and asked only when nobody else was answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bridges.circuit import EngineState
from orchestrator.engine_watch import EngineWatch
from tests.fakes.clock import VirtualClock


class Engine:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.state = EngineState.UP
        self.answered: float | None = None
        self.pings: list[float] = []
        self.alive = True
        self.denied = False

    def statistics(self) -> dict[str, Any]:
        return {"last_answer_at": self.answered, "denied": self.denied}

    async def ping(self, timeout_s: float) -> bool:
        self.pings.append(self.clock.now())
        if self.alive:
            self.answered = self.clock.now()
        else:
            await self.clock.sleep(timeout_s)
        return self.alive


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[VirtualClock, Engine, EngineWatch]]:
    clock = VirtualClock()
    engine = Engine(clock)
    watch = EngineWatch(engine, clock, period_s=10, ping_s=5)
    task = asyncio.create_task(watch.run())
    try:
        yield clock, engine, watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_asks_once_a_period() -> None:
    async with watching() as (clock, engine, watch):
        assert watch.state().state == "starting"
        await clock.advance(25)
        assert engine.pings == [0, 10, 20]
        assert watch.state().ready


async def test_live_answers_make_asking_needless() -> None:
    async with watching() as (clock, engine, _):
        for _ in range(30):
            await clock.advance(1)
            engine.answered = clock.now()
        assert engine.pings == [0]


async def test_an_engine_that_stops_answering_is_not_ready() -> None:
    async with watching() as (clock, engine, watch):
        await clock.advance(5)
        engine.alive = False
        await clock.advance(30)
        state = watch.state()
        assert not state.ready
        assert state.state == "slow"


@pytest.mark.parametrize(
    ("circuit", "ready", "state"),
    [
        (EngineState.UP, True, "ready"),
        (EngineState.LATE, True, "slow"),
        (EngineState.WEDGED, False, "wedged"),
        (EngineState.DOWN, False, "dead"),
    ],
)
async def test_dead_wedged_and_slow_are_told_apart(circuit: EngineState, ready: bool, state: str) -> None:
    async with watching() as (clock, engine, watch):
        await clock.advance(1)
        engine.state = circuit
        seen = watch.state()
        assert (seen.ready, seen.state) == (ready, state)
        assert seen.reason


async def test_who_refuses_everything_is_told_from_who_is_not_there() -> None:
    async with watching() as (_, engine, watch):
        engine.state = EngineState.DOWN
        assert "no connection" in watch.state().reason
        engine.denied = True
        assert (watch.state().state, "another model or key" in watch.state().reason) == ("dead", True)
