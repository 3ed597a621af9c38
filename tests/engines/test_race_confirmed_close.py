"""Race: the engine's word that a session is gone against the time after which it must be.

Contract: a place whose end nobody confirmed is tried to be closed again until the engine says so or its time
is over, whichever comes first; the other one then changes nothing, least of all the place of a session that
came after.
"""

from __future__ import annotations

import asyncio

from bridges.duplex_client.link import LinkError
from orchestrator.engines.pool import LINGER_S
from tests.engines.pools import opened, pool_of, spec
from tests.fakes.clock import settle


async def test_a_close_that_is_confirmed_at_the_third_try_frees_the_place() -> None:
    pool, clock = pool_of(spec("a", 1))
    answers = [False, LinkError("timeout", "no answer"), True]

    async def close() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, LinkError):
            raise answer
        return answer

    (await opened(pool, "s1")).lost(close)
    await clock.advance(1 + 2)
    assert pool.statistics()["a"]["closing"] == 1
    await clock.advance(4)
    figures = pool.statistics()["a"]
    assert (figures["closing"], figures["close_retries"], figures["expired"]) == (0, 3, 0)
    await opened(pool, "s2")


async def test_a_word_that_comes_after_the_time_is_over_frees_nobody_elses_place() -> None:
    pool, clock = pool_of(spec("a", 1))
    answer = asyncio.Event()

    async def close() -> bool:
        await answer.wait()
        return True

    (await opened(pool, "s1")).lost(close)
    await clock.advance(LINGER_S)
    await opened(pool, "s2")
    answer.set()
    await settle()
    figures = pool.statistics()["a"]
    assert (figures["sessions"], figures["closing"], figures["expired"]) == (1, 0, 1)


async def test_trying_ends_with_the_time_and_with_the_pool() -> None:
    pool, clock = pool_of(spec("a", 2))
    tries = 0

    async def close() -> bool:
        nonlocal tries
        tries += 1
        return False

    (await opened(pool, "s1")).lost(close)
    await clock.advance(LINGER_S + 20)
    assert tries == 5 and clock.sleepers == 0
    (await opened(pool, "s2")).lost(close)
    await settle()
    await pool.aclose()
    await clock.advance(LINGER_S)
    assert tries == 5


async def test_a_place_that_is_lost_behind_the_end_of_the_pool_leaves_no_task() -> None:
    pool, clock = pool_of(spec("a", 1))

    async def close() -> bool:
        raise AssertionError("nobody asks any more")

    seat = await opened(pool, "s1")
    await pool.aclose()
    seat.lost(close)
    await clock.advance(LINGER_S / 2)
    assert not pool._closers
