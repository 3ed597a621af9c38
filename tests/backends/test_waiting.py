"""Waiting with a deadline in the task that waits: who is cancelled, by whom, and what is left behind."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from orchestrator.backends.waiting import in_time
from tests.fakes.clock import VirtualClock, settle


async def test_it_begins_before_anybody_else_runs_and_ends_in_time_or_not() -> None:
    clock, order = VirtualClock(), list[str]()

    async def wait(seconds: float) -> None:
        order.append("begun")
        await clock.sleep(seconds)

    asyncio.get_running_loop().call_soon(order.append, "others")
    quick = await in_time(wait(0), clock.sleep(3))
    assert quick and order == ["begun", "others"]
    slow = asyncio.create_task(in_time(wait(9), clock.sleep(3)))
    await clock.advance(2.9)
    assert not slow.done()
    await clock.advance(0.2)
    assert slow.result() is False
    assert clock.sleepers == 0


async def test_a_caller_that_is_cancelled_stays_so() -> None:
    clock = VirtualClock()
    waiting = asyncio.create_task(in_time(clock.sleep(9), clock.sleep(3)))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await clock.advance(5)


async def test_a_deadline_at_the_moment_of_the_end_does_not_reach_what_comes_after() -> None:
    clock = VirtualClock()
    event = asyncio.Event()

    async def whole() -> bool:
        ended = await in_time(event.wait(), clock.sleep(3))
        await clock.sleep(1)
        return ended

    task = asyncio.create_task(whole())
    await settle()
    event.set()
    await clock.advance(3)
    await clock.advance(1)
    assert await task is True


async def test_what_it_raises_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("no")

    clock = VirtualClock()
    deadline = clock.sleep(3)
    with pytest.raises(ValueError, match="no"):
        await in_time(fails(), deadline)
    await settle()
    assert clock.sleepers == 0 and inspect.getcoroutinestate(deadline) == inspect.CORO_CLOSED
