"""An engine that was away gets prompts as ids again once it has been checked, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridges.circuit import EngineState
from bridges.token_path import TokenPath
from bridges.token_route import TokenRoute
from orchestrator.token_watch import Away, Changed, TokenWatch
from tests.bridges.chatting import until
from tests.fakes.clock import VirtualClock
from tests.fakes.engine_ids import route_of
from tests.fakes.engine_tokens import Tokenizer

ROUTE = route_of(Tokenizer())


class Engine:
    def __init__(self, clock: VirtualClock) -> None:
        self.tokens = TokenPath(ROUTE, clock)
        self.state = EngineState.UP
        self.losses = 0
        self.checks = 0
        self.during = lambda: None
        self.route: TokenRoute | None = ROUTE
        self.away = False
        self.changed = False
        self.unlike: str | None = None

    def statistics(self) -> dict[str, int]:
        return {"lost": self.losses}

    def lose(self) -> None:
        self.losses += 1
        self.tokens.lost()

    def learn(self) -> TokenRoute | None:
        self.during()
        self.checks += 1
        if self.away:
            raise Away("gone")
        if self.changed:
            raise Changed("another model")
        return self.route


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Engine, VirtualClock]]:
    clock = VirtualClock()
    engine = Engine(clock)
    task = asyncio.create_task(TokenWatch(engine, engine.learn, clock, period_s=5).run())
    try:
        yield engine, clock
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def looked(engine: Engine, clock: VirtualClock, times: int) -> None:
    await clock.advance(5)
    await until(lambda: engine.checks == times and clock.sleepers == 1)


async def test_it_is_checked_once_it_answers_again() -> None:
    async with watched() as (engine, clock):
        await looked(engine, clock, 0)
        engine.lose()
        engine.state = EngineState.DOWN
        await looked(engine, clock, 0)
        engine.state = EngineState.UP
        assert engine.tokens.name == "lost"
        await looked(engine, clock, 1)
        assert engine.tokens.name == "content_parts"
        await looked(engine, clock, 1)


async def test_what_came_back_may_have_no_such_route() -> None:
    async with watched() as (engine, clock):
        engine.lose()
        engine.route = None
        await looked(engine, clock, 1)
        assert (engine.tokens.name, engine.tokens.stale) == ("none", False)


async def test_an_engine_that_goes_during_its_check_is_checked_again() -> None:
    async with watched() as (engine, clock):
        engine.lose()
        engine.during = engine.lose
        await looked(engine, clock, 1)
        assert engine.tokens.name == "lost"
        engine.during = lambda: None
        engine.away = True
        await looked(engine, clock, 2)
        assert engine.tokens.name == "lost"
        engine.away = False
        await looked(engine, clock, 3)
        assert engine.tokens.name == "content_parts"


async def test_another_engine_at_its_address_is_asked_nothing_until_the_known_one_is_back() -> None:
    async with watched() as (engine, clock):
        engine.lose()
        engine.changed = True
        await looked(engine, clock, 1)
        assert (engine.unlike, engine.tokens.name) == ("another model", "lost")
        engine.state = EngineState.DOWN
        await looked(engine, clock, 2)
        engine.changed = False
        await looked(engine, clock, 3)
        assert (engine.unlike, engine.tokens.name) == (None, "content_parts")
