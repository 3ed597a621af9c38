"""Race: many sessions want an engine whose rest has just ended.

Contract: one opening at a time tries it; the others are refused or go elsewhere until that one has
succeeded; its failure begins a longer rest.
"""

from __future__ import annotations

import pytest

from orchestrator.wire.errors import EngineUnavailable
from tests.engines.pools import pool_of, spec


async def test_one_opening_tries_and_the_others_wait_for_its_outcome() -> None:
    pool, clock = pool_of(spec("a", 4))
    (await pool.take("s1")).failed("connect_failed")
    await clock.advance(1)
    trial = await pool.take("s2")
    with pytest.raises(EngineUnavailable):
        await pool.take("s3")
    trial.opened()
    await pool.take("s3")
    await pool.take("s4")


async def test_its_failure_begins_a_longer_rest() -> None:
    pool, clock = pool_of(spec("a", 4))
    (await pool.take("s1")).failed("connect_failed")
    await clock.advance(1)
    (await pool.take("s2")).failed("connect_failed")
    assert pool.statistics()["a"]["rests_s"] == 2


async def test_failures_side_by_side_begin_one_rest() -> None:
    pool, _ = pool_of(spec("a", 4))
    seats = [await pool.take(f"s{n}") for n in range(3)]
    for seat in seats:
        seat.failed("connect_failed")
    assert pool.statistics()["a"]["rests_s"] == 1
