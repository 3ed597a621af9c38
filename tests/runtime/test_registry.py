"""The registry: aliases per tenant, places, idle expiry, clean-up that is retried, draining."""

import asyncio
from dataclasses import replace

import pytest

from orchestrator.runtime.parts import SessionParts
from orchestrator.runtime.registry import RegistryLimits, SessionSpec
from orchestrator.session.commands import AppendInput
from orchestrator.wire.errors import Conflict, EngineUnavailable, ResourceExhausted
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import CONFIG, make_fleet


async def test_an_alias_finds_its_session_again_and_tenants_are_apart() -> None:
    fleet = make_fleet()
    mine = await fleet.registry.resolve("a", "cam", CONFIG)
    theirs = await fleet.registry.resolve("b", "cam", CONFIG)
    assert mine is not theirs
    assert await fleet.registry.resolve("a", "cam", CONFIG) is mine
    assert fleet.registry.owned("a", "cam") is mine
    assert fleet.registry.owned("a", "other") is None
    assert fleet.registry.get(mine.id) is mine
    assert fleet.registry.get("duplex-unknown") is None
    assert set(fleet.registry.sessions()) == {mine, theirs}
    await fleet.registry.drain(0.0)


async def test_no_alias_mints_one_that_finds_the_session_again() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", None, CONFIG)
    assert session.id.startswith("duplex-")
    assert await fleet.registry.resolve("t", session.alias, CONFIG) is session
    assert fleet.specs[0].alias == session.alias
    await fleet.registry.drain(0.0)


async def test_a_full_house_refuses_with_a_hint_and_reopens_after_a_close() -> None:
    fleet = make_fleet(RegistryLimits(max_sessions=1, retry_after_s=7.0))
    session = await fleet.registry.resolve("t", "one", CONFIG)
    with pytest.raises(ResourceExhausted) as refused:
        await fleet.registry.resolve("t", "two", CONFIG)
    assert refused.value.retry_after_s == 7.0
    await session.close("client_close")
    await settle()
    assert (await fleet.registry.resolve("t", "two", CONFIG)).is_open
    await fleet.registry.drain(0.0)


async def test_a_failed_clean_up_keeps_the_place_until_a_retry_works() -> None:
    fleet = make_fleet(RegistryLimits(max_sessions=1, reaper_interval_s=5.0))
    session = await fleet.registry.resolve("t", "one", CONFIG)
    fleet.backends[0].fail("close", EngineUnavailable("not now"), times=2)
    await session.close("client_close")
    await settle()
    with pytest.raises(ResourceExhausted):
        await fleet.registry.resolve("t", "two", CONFIG)
    assert fleet.registry.statistics()["closing"] == 1
    await fleet.clock.advance(5.0)
    assert (await fleet.registry.resolve("t", "two", CONFIG)).is_open
    await fleet.registry.drain(0.0)


async def test_an_idle_session_expires_and_its_alias_opens_a_fresh_one() -> None:
    fleet = make_fleet(RegistryLimits(idle_ttl_s=300.0, reaper_interval_s=5.0))
    old = await fleet.registry.resolve("t", "cam", CONFIG)
    events = old.events()
    await fleet.clock.advance(299.0)
    assert old.is_open
    await old.submit(AppendInput("a", frame()))
    await fleet.clock.advance(299.0)
    assert old.is_open
    await fleet.clock.advance(6.0)
    assert [event.type async for event in events] == ["session.expired"]
    fresh = await fleet.registry.resolve("t", "cam", CONFIG)
    assert fresh.id != old.id
    await fleet.registry.drain(0.0)


async def test_a_session_that_somebody_waits_on_does_not_expire() -> None:
    fleet = make_fleet(RegistryLimits(idle_ttl_s=10.0, reaper_interval_s=5.0))
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await fleet.clock.advance(30.0)
    assert session.is_open
    fleet.backends[0].stay_silent(operations=("a",))
    await waiting
    await fleet.registry.drain(0.0)


async def test_draining_lets_work_finish_then_closes_everything() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    events = session.events()
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await settle()
    with pytest.raises(EngineUnavailable) as refused:
        await fleet.registry.resolve("t", "new", CONFIG)
    assert refused.value.code == "shutting_down"
    assert not draining.done()
    fleet.backends[0].stay_silent(operations=("a",))
    assert (await waiting).action == "silence"
    await draining
    closed = [event async for event in events][-1]
    assert closed.reason == "shutdown"  # type: ignore[attr-defined]
    assert fleet.backends[0].closed


async def test_draining_closes_what_does_not_finish_in_time() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await fleet.clock.advance(20.0)
    await draining
    with pytest.raises(Conflict):
        await waiting
    assert fleet.backends[0].closed


async def test_draining_an_empty_house_returns_at_once() -> None:
    await make_fleet().registry.drain(20.0)


async def test_draining_does_not_wait_for_somebody_who_went_away() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await settle()
    waiting.cancel()
    await draining
    assert fleet.clock.now() == 0.0


async def test_a_session_is_found_and_ended_by_id_by_its_owner_alone() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    assert fleet.registry.owned("t", session.id) is session
    assert fleet.registry.owned("t", "cam") is session
    assert fleet.registry.owned("other", session.id) is None
    assert not await fleet.registry.end("duplex-unknown", "deleted")
    assert await fleet.registry.end(session.id, "deleted")
    assert fleet.registry.owned("t", session.id) is None
    await fleet.registry.drain(0.0)


async def test_a_session_is_owned_by_its_tenant_and_ended_by_its_id() -> None:
    fleet = make_fleet()
    mine = await fleet.registry.resolve("a", "cam", CONFIG)
    assert fleet.registry.owned("a", "cam") is fleet.registry.owned("a", mine.id) is mine
    assert fleet.registry.owned("b", "cam") is fleet.registry.owned("b", mine.id) is None
    assert await fleet.registry.end(mine.id, "deleted")
    assert not mine.is_open
    assert fleet.registry.owned("a", mine.id) is None
    assert not await fleet.registry.end("duplex-unknown", "deleted")
    assert await fleet.registry.resolve("a", "cam", CONFIG) is not mine
    await fleet.registry.drain(0.0)


async def test_a_session_that_goes_on_keeps_the_id_it_had() -> None:
    """Contract: after a restart a session has the id that its log has, and no other."""
    fleet = make_fleet()
    build = fleet.registry._build

    async def resumed(spec: SessionSpec) -> SessionParts:
        return replace(await build(spec), session_id="duplex-before")

    fleet.registry._build = resumed
    session = await fleet.registry.resolve("a", "cam", CONFIG)
    assert session.id == "duplex-before"
    assert fleet.registry.get("duplex-before") is fleet.registry.owned("a", "cam") is session
    assert fleet.registry.get(fleet.specs[0].session_id) is None
    assert fleet.registry.statistics()["slots"] == 1
    await fleet.registry.drain(0.0)
    assert fleet.registry.statistics()["slots"] == 0


async def test_what_a_slow_reader_lost_counts_when_its_session_is_gone() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    with session.events(maxsize=1):
        for tick in (1, 2, 3):
            fleet.backends[0].stay_silent(tick=tick)
        await settle()
        lost = fleet.registry.lost.events
        assert lost > 0
    await session.close("client_close")
    await settle()
    assert not fleet.registry.sessions() and fleet.registry.lost.events == lost
    await fleet.registry.drain(0.0)
