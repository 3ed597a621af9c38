"""Where sessions go, who is refused, and when a place is free again."""

from __future__ import annotations

from collections import Counter

import pytest

from orchestrator.engines.pool import LINGER_S
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted
from tests.engines.pools import opened, pool_of, spec


async def test_a_full_engine_refuses_with_a_hint_and_a_freed_place_is_taken_again() -> None:
    pool, _ = pool_of()
    first = await opened(pool, "s1")
    await opened(pool, "s2")
    with pytest.raises(ResourceExhausted) as refused:
        await pool.take("s3")
    assert refused.value.code == "resource_exhausted" and refused.value.retry_after_s == 5
    assert pool.refused == 1
    first.freed()
    first.freed()
    await opened(pool, "s3")
    with pytest.raises(ResourceExhausted):
        await pool.take("s4")


async def test_an_unconfirmed_end_keeps_the_place_until_the_engine_must_have_let_go() -> None:
    pool, clock = pool_of()
    seats = [await opened(pool, name) for name in ("s1", "s2")]
    seats[0].lost()
    seats[0].freed()  # a late word counts
    await opened(pool, "s3")
    seats[1].lost()
    await clock.advance(LINGER_S - 1)
    with pytest.raises(ResourceExhausted) as refused:
        await pool.take("s4")
    assert refused.value.retry_after_s == 1
    await clock.advance(1)
    await opened(pool, "s4")
    assert pool.statistics()["a"]["expired"] == 1


async def test_one_place_is_kept_for_fresh_sessions_of_those_that_are_admitted() -> None:
    pool, _ = pool_of(spec("a", 3, rolls_over=True))
    old = await opened(pool, "s1")
    await opened(pool, "s2")
    with pytest.raises(ResourceExhausted):
        await pool.take("s3")
    await opened(pool, "s1", rollover=True)
    with pytest.raises(ResourceExhausted):
        await pool.take("s2", rollover=True)
    old.freed()
    await opened(pool, "s2", rollover=True)
    assert pool.capacity == 2


async def test_sessions_of_other_processes_do_not_use_up_the_places_that_are_kept() -> None:
    pool, _ = pool_of(spec("a", 3, rolls_over=True))
    await opened(pool, "s1")
    pool.beside = 1
    with pytest.raises(ResourceExhausted) as refused:
        await pool.take("s2")
    assert refused.value.retry_after_s == 5
    await opened(pool, "s1", rollover=True)
    pool.beside = 0
    with pytest.raises(ResourceExhausted):
        await pool.take("s2")


async def test_an_engine_of_one_place_admits_one_though_it_rolls_over() -> None:
    pool, _ = pool_of(spec("a", 1, rolls_over=True))
    await opened(pool, "s1")
    with pytest.raises(ResourceExhausted):
        await pool.take("s1", rollover=True)


async def test_sessions_that_moved_to_another_engine_do_not_use_up_the_places_that_are_kept() -> None:
    pool, _ = pool_of(spec("a", 3, rolls_over=True), spec("b", 3, rolls_over=True))
    seats = [await opened(pool, f"s{n}") for n in range(4)]
    moved = next(seat for seat in seats if seat.engine == "a")
    pool.drain("a")
    await opened(pool, "m", rollover=True)
    pool.drain("a", False)
    moved.freed()
    with pytest.raises(ResourceExhausted):
        await pool.take("s9")
    assert sum(figures["sessions"] for figures in pool.statistics().values()) == pool.capacity == 4


async def test_a_place_that_is_kept_stays_so_while_another_engine_is_away() -> None:
    pool, _ = pool_of(spec("a", 3, rolls_over=True), spec("b", 3, rolls_over=True))
    away = await pool.take("s1")
    away.failed("connect_failed")
    stayed = [await opened(pool, f"n{n}") for n in range(2)]
    assert {seat.engine for seat in stayed} == {"a", "b"} - {away.engine}
    with pytest.raises(ResourceExhausted):
        await pool.take("s9")


async def test_sessions_go_where_most_room_is_and_equals_are_chosen_by_the_session() -> None:
    pool, _ = pool_of(spec("a", 4), spec("b", 4), spec("c", 2))
    went = Counter([(await opened(pool, f"s{n}")).engine for n in range(10)])
    assert went == {"a": 4, "b": 4, "c": 2}
    firsts = set()
    for n in range(20):
        fresh, _ = pool_of(spec("a", 4), spec("b", 4))
        again, _ = pool_of(spec("b", 4), spec("a", 4))
        chosen = (await fresh.take(f"s{n}")).engine
        assert (await again.take(f"s{n}")).engine == chosen
        firsts.add(chosen)
    assert firsts == {"a", "b"}


async def test_an_engine_that_falls_behind_admits_nobody_until_it_has_recovered() -> None:
    pool, _ = pool_of(spec("a", 4))
    seat = await opened(pool, "s1")
    for _ in range(40):
        seat.paced(1000, 1200)
    with pytest.raises(ResourceExhausted):
        await pool.take("s2")
    await opened(pool, "s1", rollover=True)
    assert pool.statistics()["a"]["state"] == "behind"
    for _ in range(3):
        seat.paced(1000, 500)
    assert pool.statistics()["a"]["real_time_factor"] < 1
    with pytest.raises(ResourceExhausted):
        await pool.take("s2")
    for _ in range(10):
        seat.paced(1000, 500)
    await opened(pool, "s2")


async def test_what_was_measured_long_ago_says_nothing() -> None:
    pool, clock = pool_of()
    seat = await opened(pool, "s1")
    for _ in range(40):
        seat.paced(1000, 2000)
    seat.freed()
    await clock.advance(15)
    await opened(pool, "s2")
    seat.paced(1000, 9000)  # of a session that is gone
    assert pool.statistics()["a"]["real_time_factor"] == 0


async def test_a_first_slow_unit_and_unusable_figures_are_no_alarm() -> None:
    pool, _ = pool_of()
    seat = await opened(pool, "s1")
    seat.paced(1000, 8000)
    seat.paced(0, 10)
    seat.paced(1000, float("nan"))
    seat.paced(1000, -1)
    assert pool.statistics()["a"]["state"] == "up"


async def test_short_units_may_lag_by_the_length_of_their_pipeline() -> None:
    pool, _ = pool_of()
    seat = await opened(pool, "s1")
    for _ in range(500):
        seat.paced(80, 200)
    assert pool.statistics()["a"]["state"] == "up"
    for _ in range(500):
        seat.paced(80, 2000)
    assert pool.statistics()["a"]["state"] == "behind"


async def test_an_engine_whose_opening_failed_is_left_alone_for_a_while() -> None:
    pool, clock = pool_of(spec("a", 4), spec("b", 4))
    seat = await pool.take("s1")
    bad, good = seat.engine, "b" if seat.engine == "a" else "a"
    seat.failed("connect_failed")
    assert pool.statistics()[bad]["state"] == "down"
    assert {(await opened(pool, f"n{n}")).engine for n in range(3)} == {good}
    rests = []
    for _ in range(8):
        pool.drain(good)
        rests.append(pool.statistics()[bad]["rests_s"])
        await clock.advance(rests[-1])
        (await pool.take("again")).failed("connect_failed")
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pool.statistics()[bad]["sessions"] == 0


async def test_when_no_engine_answers_that_is_said() -> None:
    pool, _ = pool_of()
    (await pool.take("s1")).failed("connect_failed")
    with pytest.raises(EngineUnavailable) as away:
        await pool.take("s2")
    assert away.value.retry_after_s == 1


async def test_an_opening_without_a_word_keeps_its_place_and_a_refusal_does_not() -> None:
    pool, clock = pool_of(spec("a", 3))
    (await pool.take("s1")).failed("timeout")
    assert pool.statistics()["a"]["closing"] == 1
    await clock.advance(1)
    (await pool.take("s2")).failed("ref_audio_required")
    figures = pool.statistics()["a"]
    assert (figures["closing"], figures["sessions"], figures["state"]) == (1, 0, "up")


async def test_an_engine_that_is_full_by_its_own_word_is_asked_a_little_later() -> None:
    pool, clock = pool_of(spec("a", 4))
    (await pool.take("s1")).failed("resource_exhausted")
    with pytest.raises(ResourceExhausted) as refused:
        await pool.take("s2")
    assert refused.value.retry_after_s == 5
    await clock.advance(5)
    await opened(pool, "s2")


async def test_a_draining_engine_gets_nobody_and_keeps_whom_it_has() -> None:
    pool, _ = pool_of(spec("a", 4))
    seat = await opened(pool, "s1")
    pool.drain("a")
    for rollover in (False, True):
        with pytest.raises(ResourceExhausted):
            await pool.take("s2", rollover=rollover)
    assert pool.statistics()["a"]["state"] == "draining" and pool.capacity == 0
    seat.freed()
    pool.drain("a", False)
    await opened(pool, "s2")
    with pytest.raises(KeyError):
        pool.drain("z")


async def test_a_new_instance_frees_what_only_the_former_one_held() -> None:
    pool, _ = pool_of(spec("a", 3))
    seats = [await opened(pool, f"s{n}") for n in range(3)]
    pool.seen("a", "boot 1")
    seats[0].lost()
    pool.seen("a", "boot 1")
    assert pool.statistics()["a"]["closing"] == 1
    pool.seen("a", "boot 2")
    assert pool.statistics()["a"] | {"closing": 0, "sessions": 2} == pool.statistics()["a"]
    seats[1].lost()  # was on the former one: nothing is left to wait for
    assert pool.statistics()["a"]["closing"] == 0
    (await opened(pool, "s9")).lost()
    assert pool.statistics()["a"]["closing"] == 1


def test_two_engines_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        pool_of(spec("a"), spec("a"))
