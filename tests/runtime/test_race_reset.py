"""Race: work is queued behind a reset of its session.

Contract: a reset ends that very session and frees its alias for a fresh one; work that waited on the old
session is woken with a typed error and never touches the new one; one session lives at a time behind an
alias as far as ``resolve`` can see; a hung call does not hold up a reset beyond its grace.
"""

import asyncio

import pytest

from orchestrator.runtime.registry import RegistryLimits
from orchestrator.session.commands import AppendInput, AskQuery
from orchestrator.wire.errors import Conflict, ResourceExhausted
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import CONFIG, make_fleet


async def test_queued_work_never_reaches_the_fresh_session() -> None:
    fleet = make_fleet()
    old = await fleet.registry.resolve("t", "cam", CONFIG)
    fleet.backends[0].hold("append")
    first = asyncio.create_task(old.operation(AppendInput("a", frame()), 60.0))
    behind = asyncio.create_task(old.operation(AskQuery("smoke?", "q"), 60.0))
    await settle()
    resetting = asyncio.create_task(fleet.registry.reset("t", "cam"))
    await settle()
    fresh = await fleet.registry.resolve("t", "cam", CONFIG)
    assert fresh.id != old.id
    await fleet.clock.advance(1.0)
    assert await resetting
    for waiting in (first, behind):
        with pytest.raises(Conflict):
            await waiting
    with pytest.raises(Conflict) as refused:
        await old.submit(AppendInput("late", frame()))
    assert refused.value.code == "session_closed"
    assert fleet.backends[1].methods() == ["open"]
    assert await fleet.registry.resolve("t", "cam", CONFIG) is fresh
    await fleet.registry.drain(0.0)


async def test_a_reset_hands_its_place_on_when_all_are_taken() -> None:
    fleet = make_fleet(RegistryLimits(max_sessions=1))
    old = await fleet.registry.resolve("t", "cam", CONFIG)
    fleet.backends[0].hold("close")
    resetting = asyncio.create_task(fleet.registry.reset("t", "cam"))
    await settle()
    resolving = asyncio.create_task(fleet.registry.resolve("t", "cam", CONFIG))
    await settle()
    assert len(fleet.built) == 1, "the fresh one opens only when the old one is gone"
    with pytest.raises(ResourceExhausted):
        await fleet.registry.resolve("t", "other", CONFIG)
    fleet.backends[0].free("close")
    assert await resetting
    assert (await resolving).id != old.id
    await fleet.registry.drain(0.0)


async def test_a_reset_of_a_session_that_is_opening_waits_for_it() -> None:
    fleet = make_fleet()
    resolving = asyncio.create_task(fleet.registry.resolve("t", "cam", CONFIG))
    resetting = asyncio.create_task(fleet.registry.reset("t", "cam"))
    old = await resolving
    assert await resetting
    assert old.closed.is_set()
    await fleet.registry.drain(0.0)


async def test_a_cancelled_reset_still_ends_the_session() -> None:
    fleet = make_fleet()
    old = await fleet.registry.resolve("t", "cam", CONFIG)
    resetting = asyncio.create_task(fleet.registry.reset("t", "cam"))
    await asyncio.sleep(0)
    resetting.cancel()
    await old.closed.wait()
    await fleet.registry.drain(0.0)


async def test_resetting_nothing_says_so() -> None:
    fleet = make_fleet()
    assert not await fleet.registry.reset("t", "cam")
    await fleet.registry.resolve("t", "cam", CONFIG)
    assert not await fleet.registry.reset("other tenant", "cam")
    await fleet.registry.drain(0.0)
