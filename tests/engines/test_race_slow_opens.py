"""Race: several sessions open at once while the engine takes its time to prepare them.

Contract: a place is charged before the first wait, so never more openings are under way than there are
places; the one too many is refused at once; an opening that fails or is cancelled gives its place back,
at once where the engine refused it, and after the engine must have let go where nobody knows.
"""

from __future__ import annotations

import asyncio

import pytest

from bridges.duplex_client.link import LinkError
from orchestrator.backends.native.seating import open_seated
from orchestrator.engines.pool import LINGER_S
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted
from tests.engines.pools import SlowEngine, pool_of, spec
from tests.fakes.clock import settle


async def test_of_three_openings_two_succeed_and_one_is_refused() -> None:
    pool, _ = pool_of(spec("a", 2))
    engine = SlowEngine()
    tasks = [asyncio.create_task(open_seated(pool, f"s{n}", engine)) for n in range(3)]
    await settle()
    assert [task.done() for task in tasks].count(True) == 1 and len(engine.asked) == 2
    engine.go.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [end for end in ended if isinstance(end, ResourceExhausted)]
    assert len(refused) == 1 and refused[0].code == "resource_exhausted"
    assert pool.statistics()["a"]["sessions"] == 2


async def test_a_cancelled_opening_keeps_its_place_until_the_engine_must_have_let_go() -> None:
    pool, clock = pool_of(spec("a", 1))
    engine = SlowEngine()
    task = asyncio.create_task(open_seated(pool, "s1", engine))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.statistics()["a"]["closing"] == 1
    with pytest.raises(ResourceExhausted):
        await open_seated(pool, "s2", engine)
    await clock.advance(LINGER_S)
    engine.go.set()
    await open_seated(pool, "s2", engine)


async def test_an_opening_cancelled_before_it_began_takes_nothing() -> None:
    pool, _ = pool_of(spec("a", 1))
    task = asyncio.create_task(open_seated(pool, "s1", SlowEngine()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.statistics()["a"]["sessions"] == pool.statistics()["a"]["closing"] == 0


async def test_a_sick_engines_sessions_open_on_another() -> None:
    pool, _ = pool_of(spec("a", 4), spec("b", 4))
    engine = SlowEngine()
    engine.refuse = {"a": "connect_failed"}
    engine.go.set()
    opened = [await open_seated(pool, f"s{n}", engine) for n in range(4)]
    assert {seat.engine for seat, _ in opened} == {"b"}
    assert engine.asked.count("a") <= 1


async def test_a_refusal_of_what_was_asked_is_not_tried_elsewhere() -> None:
    pool, _ = pool_of(spec("a", 4), spec("b", 4))
    engine = SlowEngine()
    engine.refuse = dict.fromkeys("ab", "ref_audio_required")
    engine.go.set()
    with pytest.raises(LinkError) as refused:
        await open_seated(pool, "s1", engine)
    assert refused.value.code == "ref_audio_required" and len(engine.asked) == 1
    assert all(figures["sessions"] == 0 for figures in pool.statistics().values())


async def test_when_every_engine_is_sick_that_is_said() -> None:
    pool, _ = pool_of(spec("a", 4), spec("b", 4))
    engine = SlowEngine()
    engine.refuse = dict.fromkeys("ab", "connect_failed")
    engine.go.set()
    with pytest.raises(EngineUnavailable):
        await open_seated(pool, "s1", engine)
    assert sorted(engine.asked) == ["a", "b"]
