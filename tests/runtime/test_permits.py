"""Permits: bounded, first come first served, live before prewarm before summary, nothing lost on cancel."""

import asyncio

import pytest

from orchestrator.runtime.permits import Permits
from tests.fakes.clock import settle


async def test_live_ticks_are_bounded_and_first_come_first_served() -> None:
    permits = Permits(live=2)
    order: list[str] = []

    async def tick(name: str) -> None:
        await permits.live(name)
        order.append(name)

    tasks = [asyncio.create_task(tick(name)) for name in "abcd"]
    await settle()
    assert order == ["a", "b"]
    permits.done("b")
    await settle()
    assert order == ["a", "b", "c"]
    permits.done("a")
    permits.done("c")
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "d"]


async def test_background_waits_while_a_live_tick_waits() -> None:
    permits = Permits(live=1)
    await permits.live("a")
    waiting = asyncio.create_task(permits.live("b"))
    await settle()
    background = asyncio.create_task(permits.background("a", "prewarm"))
    await settle()
    assert not background.done()
    permits.done("a")
    await waiting
    await background


async def test_background_starts_in_a_pause_between_live_ticks() -> None:
    permits = Permits(live=2)
    await permits.live("a")
    background = asyncio.create_task(permits.background("a", "prewarm"))
    await settle()
    assert not background.done(), "a live tick runs"
    permits.done("a")
    await background


async def test_where_there_is_no_pause_background_lets_one_live_tick_go_first() -> None:
    permits = Permits(live=2)
    await permits.live("a")
    first = asyncio.create_task(permits.background("a", "prewarm"))
    second = asyncio.create_task(permits.background("b", "summary"))
    await settle()
    await permits.live("b")
    await first
    permits.done("a", "prewarm")
    await second


async def test_work_of_use_beside_a_live_tick_waits_for_no_pause() -> None:
    permits = Permits(live=2)
    await permits.live("a")
    waiting = asyncio.create_task(permits.background("b", "prewarm"))
    await settle()
    await permits.background("a", "prewarm", beside=True)
    assert not waiting.done()


async def test_a_running_summary_never_holds_the_place_of_a_tick() -> None:
    permits = Permits(live=1)
    await permits.background("a", "summary")
    await permits.live("a")
    assert permits.statistics()["running"] == {"live": 1, "prewarm": 0, "summary": 1}


async def test_prewarm_goes_before_summary() -> None:
    permits = Permits(live=1)
    await permits.background("a", "summary")
    order: list[str] = []

    async def work(kind: str) -> None:
        await permits.background("b", kind)
        order.append(kind)
        permits.done("b", kind)

    tasks = [asyncio.create_task(work(kind)) for kind in ("summary", "prewarm")]
    await settle()
    permits.done("a", "summary")
    await asyncio.gather(*tasks)
    assert order == ["prewarm", "summary"]


async def test_what_was_read_and_is_being_written_holds_nobodys_place() -> None:
    permits = Permits(live=1, background=1, texts=2)
    await permits.background("a", "summary")
    waiting = [asyncio.create_task(permits.background(name, "summary")) for name in "bcd"]
    await settle()
    assert not any(each.done() for each in waiting), "one is read at a time"
    permits.read("a", "summary")
    await settle()
    assert [each.done() for each in waiting] == [True, False, False]
    permits.read("b", "summary")
    await settle()
    assert not waiting[1].done(), "two are written at a time"
    await permits.background("e", "prewarm")
    permits.done("a", "summary")
    await settle()
    assert not waiting[1].done(), "a prompt is being read"
    permits.done("e", "prewarm")
    await waiting[1]
    permits.done("b", "summary")
    permits.done("c", "summary")  # though it was not read
    await waiting[2]
    assert permits.statistics()["running"] == {"live": 0, "prewarm": 0, "summary": 1}


async def test_reading_ends_once() -> None:
    permits = Permits(live=1)
    await permits.background("a", "summary")
    permits.read("a", "summary")
    for session, kind in (("a", "summary"), ("b", "summary"), ("a", "prewarm")):
        with pytest.raises(ValueError, match=f"session {session} holds no {kind} permit that is being read"):
            permits.read(session, kind)
    permits.done("a", "summary")
    await permits.background("b", "summary")


async def test_prewarms_and_summaries_that_waited_too_long_take_turns() -> None:
    """A window changes once it has had one of each: with summaries first for ever none did, and all grew."""
    permits = Permits(live=1, patience={"prewarm": 1, "summary": 2})
    await permits.background("a", "summary")
    order: list[str] = []

    async def work(kind: str) -> None:
        await permits.background("b", kind)
        order.append(kind)

    kinds = ("summary", "summary", "summary", "prewarm", "prewarm")
    tasks = [asyncio.create_task(work(kind)) for kind in kinds]
    await settle()
    for _ in range(2):  # ticks that go first
        await permits.live("c")
        permits.done("c")
    permits.done("a", "summary")
    while len(order) < len(kinds):
        await settle()
        permits.done("b", order[-1])
    await asyncio.gather(*tasks)
    assert order == ["summary", "prewarm", "summary", "prewarm", "summary"]


async def test_a_cancelled_waiter_is_skipped() -> None:
    permits = Permits(live=1)
    await permits.live("a")
    gone = asyncio.create_task(permits.live("b"))
    kept = asyncio.create_task(permits.live("c"))
    await settle()
    gone.cancel()
    permits.done("a")
    await kept
    assert permits.statistics()["waiting"]["live"] == 0


async def test_cancelling_the_last_live_waiter_lets_background_start() -> None:
    permits = Permits(live=1)
    await permits.live("a")
    waiting = asyncio.create_task(permits.live("b"))
    background = asyncio.create_task(permits.background("c", "summary", beside=True))
    await settle()
    waiting.cancel()
    await background


async def test_a_permit_granted_to_a_cancelled_task_comes_back() -> None:
    permits = Permits(live=1)
    await permits.live("a")
    waiting = asyncio.create_task(permits.live("b"))
    await settle()
    permits.done("a")  # granted to b now ...
    waiting.cancel()  # ... and cancelled before b ran
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await permits.live("c")
    assert permits.statistics()["running"]["live"] == 1


async def test_giving_back_what_is_not_held_is_an_error() -> None:
    permits = Permits(live=1)
    with pytest.raises(ValueError, match="holds no live permit"):
        permits.done("a")
    with pytest.raises(ValueError, match="unknown kind"):
        await permits.background("a", "live")


async def test_a_tenant_with_many_sessions_delays_another_no_more_than_one_turn() -> None:
    permits = Permits(live=1)
    await permits.live("a0", tenant="a")
    order: list[str] = []

    async def tick(name: str, tenant: str, weight: int = 1) -> None:
        await permits.live(name, tenant=tenant, weight=weight)
        order.append(name)
        permits.done(name)

    crowd = [asyncio.create_task(tick(f"a{number}", "a")) for number in range(1, 9)]
    await settle()
    few = [asyncio.create_task(tick(f"b{number}", "b")) for number in range(2)]
    await settle()
    permits.done("a0")
    await asyncio.gather(*crowd, *few)
    assert order.index("b0") <= 1 and order.index("b1") <= 3
    assert [name for name in order if name[0] == "a"] == [f"a{number}" for number in range(1, 9)]


@pytest.mark.parametrize("kind", ["prewarm", "summary"])
async def test_nor_does_what_its_sessions_want_in_the_background(kind: str) -> None:
    """All windows of a crowd that came together change together."""
    permits = Permits(live=1)
    await permits.background("a0", kind, tenant="a")
    order: list[str] = []

    async def work(name: str, tenant: str) -> None:
        await permits.background(name, kind, tenant=tenant)
        order.append(name)
        permits.done(name, kind)

    crowd = [asyncio.create_task(work(f"a{number}", "a")) for number in range(1, 50)]
    await settle()
    other = asyncio.create_task(work("b0", "b"))
    await settle()
    permits.done("a0", kind)
    await asyncio.gather(*crowd, other)
    assert order.index("b0") <= 1


async def test_turns_follow_the_weights() -> None:
    permits = Permits(live=1)
    await permits.live("first")
    order: list[str] = []

    async def tick(tenant: str, weight: int) -> None:
        await permits.live(tenant, tenant=tenant, weight=weight)
        order.append(tenant)
        permits.done(tenant)

    tasks = [asyncio.create_task(tick(*who)) for _ in range(16) for who in (("low", 1), ("normal", 4))]
    await settle()
    permits.done("first")
    await asyncio.gather(*tasks)
    assert order[:15].count("normal") == 12 and order[:15].count("low") == 3


async def test_whoever_comes_to_a_quiet_engine_has_no_debts() -> None:
    permits = Permits(live=1)
    for _ in range(50):
        await permits.live("a", tenant="a")
        permits.done("a")
    await permits.live("x", tenant="x")
    order: list[str] = []

    async def tick(tenant: str) -> None:
        await permits.live(tenant, tenant=tenant)
        order.append(tenant)
        permits.done(tenant)

    tasks = [asyncio.create_task(tick(tenant)) for tenant in ("a", "b")]
    await settle()
    permits.done("x")
    await asyncio.gather(*tasks)
    assert order == ["a", "b"]


async def test_who_gives_up_leaves_the_order_of_the_others_as_it_was() -> None:
    """Under overload the first of a tenant give up: those that come then do not overtake the rest."""
    permits = Permits(live=1)
    await permits.live("first", tenant="b")
    order: list[str] = []

    async def tick(name: str) -> None:
        await permits.live(name, tenant=name[0])
        order.append(name)
        permits.done(name)

    tasks = [asyncio.create_task(tick(f"a{number}")) for number in range(6)]
    await settle()
    for task in tasks[:4]:
        task.cancel()
    await settle()
    tasks += [asyncio.create_task(tick(name)) for name in ("a6", "a7", "b0", "b1")]
    await settle()
    permits.done("first")
    await asyncio.gather(*tasks[4:])
    assert [name for name in order if name[0] == "a"] == ["a4", "a5", "a6", "a7"]
    assert order[:4] == ["a4", "b0", "a5", "b1"], "nobody pays for a turn that he did not get"
