"""Where sessions are at home: they stay, leave a drained engine at a window's end, and a dead one at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from bridges.circuit import EngineState
from bridges.engine import ChatEvent, ChatRequest, Deadlines, ImageBytes
from orchestrator.backends.live_tick import LiveTick
from orchestrator.engines.fleet import Fleet, Home, Host
from orchestrator.engines.returning import PLACE_S
from orchestrator.engines.room import Caches, Need, Priority, Room
from orchestrator.runtime.permits import Permits
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted
from tests.engines.rooms import holding
from tests.fakes.clock import VirtualClock, settle


class Named:
    """An engine that only notes down what it is asked."""

    def __init__(self) -> None:
        self.state = EngineState.UP
        self.asked: list[str] = []

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]:
        self.asked.append(request.purpose)
        return
        yield

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return 0

    async def ping(self, timeout_s: float) -> bool:
        return True

    async def aclose(self) -> None:
        pass

    def statistics(self) -> Mapping[str, Any]:
        return {}


def fleet_of(*names: str, most: int | None = 100) -> tuple[Fleet, VirtualClock]:
    clock = VirtualClock()
    return Fleet(
        [Host(name, Named(), Permits(4), Room(holding(most)), clock) for name in names], clock
    ), clock


def home_of(fleet: Fleet, session: str = "s1", priority: Priority = Priority.NORMAL) -> Home:
    return fleet.home(session, priority, "local")


async def ask(home: Home, purpose: str) -> None:
    request = ChatRequest([], {}, Deadlines(1, 1), "s1", purpose)
    async for _ in home.chat.chat(request, lambda _: b""):
        pass


def host(fleet: Fleet, name: str) -> Host:
    return next(host for host in fleet.hosts if host.name == name)


async def test_a_drained_engine_is_left_at_the_next_window_which_is_warmed_elsewhere() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old, new = home.name, ({"a", "b"} - {home.name}).pop()
    assert not home.leaves_soon
    fleet.drain(old, True)
    assert home.leaves_soon
    home.handover_begun()
    assert not home.leaves_soon, "it is on its way"
    await ask(home, "prewarm 2/0")
    await ask(home, "decision 7")
    assert engine(fleet, new).asked == ["prewarm 2/0"] and engine(fleet, old).asked == ["decision 7"]
    home.switched()
    await ask(home, "decision 8")
    assert engine(fleet, new).asked[-1] == "decision 8"
    assert (len(host(fleet, old).room), len(host(fleet, new).room)) == (0, 1)
    assert fleet.moves == {"drained": 1, "balanced": 0, "died": 0}


async def test_a_session_stays_where_it_is_while_nothing_is_wrong() -> None:
    fleet, _ = fleet_of("a", "b", "c")
    home = home_of(fleet)
    name = home.name
    for _ in range(5):
        home.handover_begun()
        home.switched()
    assert home.name == name and sum(fleet.moves.values()) == 0


async def test_a_dead_engine_is_left_at_once_few_at_a_time_high_classes_first() -> None:
    fleet, _ = fleet_of("a", "b")
    homes = [
        home_of(fleet, f"s{number}", Priority.HIGH if number >= 8 else Priority.NORMAL)
        for number in range(10)
        if settled(fleet)
    ]
    engine(fleet, "a").state = EngineState.DOWN
    moving = [home for home in homes if home.name == "a"]
    turns = {home.session: asyncio.create_task(home.lost()) for home in moving}
    await settle()
    assert all(home.name == "b" for home in homes)
    done = [session for session, task in turns.items() if task.done()]
    assert len(done) == min(4, len(moving))
    last = [home for home in moving if home.session not in done]
    for home in moving:
        if home.session in done:
            home.answered(LiveTick(0.1, 1.0, kept=0, promised=0))
    await settle()
    assert all(turns[home.session].done() for home in last[:4])
    for home in homes:
        home.leave()
    assert len(host(fleet, "b").room) == 0 and host(fleet, "b").cold.statistics()["reading"] == 0
    await asyncio.gather(*turns.values())


async def test_a_session_that_shows_nothing_more_gives_its_place_to_others() -> None:
    fleet, clock = fleet_of("a", "b")
    homes = [home_of(fleet, f"s{number}") for number in range(16) if settled(fleet)]
    engine(fleet, "a").state = EngineState.DOWN
    moving = [home for home in homes if home.name == "a"][:8]
    assert len(moving) > 4
    turns = [asyncio.create_task(home.lost()) for home in moving]
    await settle()
    assert sum(turn.done() for turn in turns) == 4
    await clock.advance(PLACE_S)
    assert all(turn.done() for turn in turns)


async def test_where_nobody_answers_the_session_waits_for_its_own() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    for each in fleet.hosts:
        each.chat.state = EngineState.DOWN  # type: ignore[misc]
    assert not await home.lost()
    with pytest.raises(EngineUnavailable):
        home_of(fleet, "s2")


async def test_a_next_engine_that_dies_is_given_up_and_the_window_warmed_at_home() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old, new = home.name, ({"a", "b"} - {home.name}).pop()
    fleet.drain(old, True)
    home.handover_begun()
    engine(fleet, new).state = EngineState.WEDGED
    await ask(home, "prewarm 2/0")
    home.switched()
    assert home.name == old and len(host(fleet, new).room) == 0


async def test_a_window_warmed_on_an_engine_that_died_is_read_in_at_home() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old, new = home.name, ({"a", "b"} - {home.name}).pop()
    fleet.drain(old, True)
    home.handover_begun()
    await ask(home, "prewarm 2/0")
    engine(fleet, new).state = EngineState.DOWN
    home.switched()
    assert home.name == old and len(host(fleet, new).room) == 0
    assert fleet.moves["drained"] == 0


async def test_who_waits_for_a_turn_on_an_engine_that_is_removed_waits_on_the_next_one() -> None:
    fleet, _ = fleet_of("a", "b", "c")
    homes = [home_of(fleet, f"s{number}") for number in range(40) if settled(fleet)]
    for name in "bc":
        fleet.drain(name, True)
    lost = [home for home in homes if home.name == "a"]
    engine(fleet, "a").state = EngineState.DOWN
    fleet.drain("b", False)
    turns = {home.session: asyncio.create_task(home.lost()) for home in lost}
    await settle()
    assert all(home.name == "b" for home in lost) and len(lost) > 8
    fleet.drain("c", False)
    fleet.remove("b")
    for _ in lost:
        await settle()
        for home in lost:
            if turns[home.session].done():
                home.answered(LiveTick(0.1, 1.0, kept=0, promised=0))
    assert all(task.done() for task in turns.values())
    assert {home.name for home in lost} == {"c"}
    assert host(fleet, "c").cold.statistics() == {"reading": 0, "waiting": 0}


async def test_a_session_that_was_moved_while_it_asked_is_not_moved_again() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    await ask(home, "decision 1")
    fleet.remove(home.name)
    now = home.name
    assert await home.lost(), "what failed was the request to the engine that is gone"
    assert home.name == now and fleet.moves == {"drained": 1, "balanced": 0, "died": 0}
    await home.chat.ping(1.0)
    assert not await home.lost(), "now it is this one that gives no answers"


async def test_a_dead_engine_is_no_share_of_what_the_others_carry() -> None:
    fleet, _ = fleet_of("a", "b", "c")
    engine(fleet, "c").state = EngineState.DOWN
    homes = [home_of(fleet, f"s{number}") for number in range(20) if settled(fleet)]
    for home in homes:
        home.handover_begun()
        home.switched()
    assert sum(fleet.moves.values()) == 0


async def test_a_tick_that_waits_while_its_session_is_moved_waits_at_the_engine_that_it_will_ask() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old = host(fleet, home.name)
    for number in range(4):
        await old.permits.live(f"other{number}")
    waits = asyncio.create_task(home.permits.live("s1"))
    await settle()
    fleet.remove(old.name)
    old.permits.done("other0")
    await waits
    assert old.permits.statistics()["running"]["live"] == 3
    assert home.host.permits.statistics()["running"]["live"] == 1
    home.permits.done("s1")


@pytest.mark.parametrize("kind", ["prewarm", "summary"])
async def test_background_work_waits_at_the_engine_that_it_will_ask_too(kind: str) -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old = host(fleet, home.name)
    await old.permits.live("other")
    waits = asyncio.create_task(home.permits.background("s1", kind))
    await settle()
    fleet.remove(old.name)
    old.permits.done("other")
    await waits
    assert not any(old.permits.statistics()["running"].values())
    assert home.host.permits.statistics()["running"][kind] == 1
    home.permits.read("s1", kind)
    home.permits.done("s1", kind)
    assert not any(home.host.permits.statistics()["running"].values())


@pytest.mark.parametrize("kind", ["prewarm", "summary"])
async def test_background_work_is_its_tenants(kind: str) -> None:
    fleet, _ = fleet_of("a")
    crowd, other = home_of(fleet, "s1"), fleet.home("s2", Priority.NORMAL, "another")
    permits, order = crowd.host.permits, list[str]()
    await permits.background("s0", kind)

    async def work(home: Home, name: str) -> None:
        await home.permits.background(name, kind)
        order.append(name)
        home.permits.done(name, kind)

    tasks = [asyncio.create_task(work(crowd, "s1")) for _ in range(9)]
    await settle()
    tasks.append(asyncio.create_task(work(other, "s2")))
    await settle()
    permits.done("s0", kind)
    await asyncio.gather(*tasks)
    assert order.index("s2") <= 1


async def test_permits_are_given_back_where_they_were_granted() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old = host(fleet, home.name)
    await home.permits.live("s1")
    fleet.drain(old.name, True)
    home.handover_begun()
    home.switched()
    assert home.host is not old
    home.permits.done("s1")
    assert old.permits.statistics()["running"]["live"] == 0


async def test_full_engines_refuse_and_say_why() -> None:
    fleet, _ = fleet_of("a", "b", most=1)
    home_of(fleet, "s1")
    home_of(fleet, "s2")
    with pytest.raises(ResourceExhausted) as refused:
        home_of(fleet, "s3")
    assert refused.value.retry_after_s and "carry 1 sessions" in refused.value.message
    assert fleet.refused == 1


async def test_sessions_of_other_processes_take_room_too() -> None:
    fleet, _ = fleet_of("a", "b", most=4)
    fleet.beside = 5
    homes = [home_of(fleet, f"s{number}") for number in range(2) if settled(fleet)]
    assert {home.name for home in homes} == {"a", "b"}, "three of five may be at either"
    with pytest.raises(ResourceExhausted):
        home_of(fleet, "s3")
    engine(fleet, "a").state = EngineState.DOWN
    at_a = next(home for home in homes if home.name == "a")
    await ask(at_a, "decision 1")
    assert not await at_a.lost(), "their five are at the other engine now"
    fleet.beside = 0
    assert await at_a.lost() and home_of(fleet, "s4").name == "b"


async def test_an_engine_is_removed_with_the_sessions_that_are_left_going_elsewhere() -> None:
    fleet, _ = fleet_of("a", "b")
    home = home_of(fleet)
    old = home.name
    fleet.remove(old)
    assert home.name != old and [each.name for each in fleet.hosts] == [home.name]
    with pytest.raises(ValueError, match="only engine"):
        fleet.remove(home.name)
    with pytest.raises(KeyError):
        fleet.drain("c", True)


async def test_an_engine_that_comes_takes_sessions_from_those_that_carry_too_much() -> None:
    fleet, clock = fleet_of("a")
    homes = [home_of(fleet, f"s{number}") for number in range(12) if settled(fleet)]
    fleet.add(Host("b", Named(), Permits(4), Room(holding(100)), clock))
    for home in homes:
        settled(fleet)
        home.handover_begun()
        home.switched()
    carried = {each.name: len(each.room) for each in fleet.hosts}
    assert carried["a"] <= 9 and carried["b"] >= 3
    assert clock.now() == 0


async def test_of_memories_that_outgrow_an_engine_as_many_go_elsewhere_as_are_too_many() -> None:
    clock = VirtualClock()
    caches = [Caches(Need(1_000, 2_000, 100, 0, 0, 0, 0), tokens, None) for tokens in (11_000, 100_000)]
    fleet = Fleet(
        [Host(name, Named(), Permits(4), Room(of), clock) for name, of in zip("ab", caches, strict=True)],
        clock,
    )
    fleet.drain("b", True)
    homes = [home_of(fleet, f"s{number}") for number in range(10) if settled(fleet)]
    fleet.drain("a", True)
    fleet.drain("b", False)
    for number in range(10, 20):
        home_of(fleet, f"s{number}")
    fleet.drain("a", False)
    for home in homes:
        home.handover_begun()
    assert all(home.next is None for home in homes), "ten are what it carries"
    settled(fleet)
    for home in homes:
        home.answered(LiveTick(0.1, 1.0, kept=1, promised=1, head_tokens=1_500))
    assert host(fleet, "a").room.most == 6
    for home in homes:
        home.handover_begun()
    for home in homes:
        home.switched()
    assert sum(home.name == "a" for home in homes) == 6 and fleet.moves["balanced"] == 4


def engine(fleet: Fleet, name: str) -> Named:
    chat = host(fleet, name).chat
    assert isinstance(chat, Named)
    return chat


def settled(fleet: Fleet) -> bool:
    """Everyone who came so far has been answered."""
    for each in fleet.hosts:
        for home in each.homes:
            for _ in range(3):
                each.room.answered(home.session, 0, LiveTick(0.1, 1.0, kept=1, promised=1))
    return True
