"""Race: the service shuts down while sessions open, end, fault, hang and are joined.

Contract: from the first moment of a drain nobody is admitted; what was being opened is closed once it is
open, or given up at the deadline; every session's client reads the end with the reason ``shutdown``, or the
reason of the close that came first; a backend that hangs costs its deadline and no more; a second drain waits
for the same end.
"""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.runtime.attachment import Attachment
from orchestrator.runtime.calls import CallDeadlines
from orchestrator.runtime.parts import SessionParts
from orchestrator.runtime.registry import RegistryLimits, RuntimeLimits
from orchestrator.session.commands import AppendInput
from orchestrator.wire.errors import EngineUnavailable, VigilError
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import CONFIG, make_fleet
from tests.runtime.test_attachment import Writer


def reasons(writer: Writer) -> list[str]:
    return [event["reason"] for event in writer.written if event["type"] == "session.closed"]


async def test_an_open_that_is_under_way_is_closed_once_it_is_open() -> None:
    fleet = make_fleet()
    gate = asyncio.Event()
    build = fleet.registry._build

    async def slow(spec: object) -> SessionParts:
        await gate.wait()
        return await build(spec)  # type: ignore[arg-type]

    fleet.registry._build = slow
    opening = asyncio.create_task(fleet.registry.resolve("t", "cam", CONFIG))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(5.0))
    await settle()
    assert not draining.done()
    gate.set()
    session = await opening
    await draining
    assert not session.is_open
    assert fleet.backends[0].closed
    assert fleet.registry.statistics()["slots"] == 0


async def test_an_open_that_never_ends_costs_the_deadline_and_no_more() -> None:
    fleet = make_fleet()

    async def stuck(spec: object) -> SessionParts:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    fleet.registry._build = stuck
    opening = asyncio.create_task(fleet.registry.resolve("t", "cam", CONFIG))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(5.0))
    await fleet.clock.advance(4.9)
    assert not opening.done() and not draining.done()
    await fleet.clock.advance(0.1)
    with pytest.raises(EngineUnavailable) as refused:
        await opening
    assert refused.value.code == "shutting_down"
    await draining
    assert fleet.registry.statistics()["slots"] == 0


async def test_nobody_is_admitted_by_any_way_once_it_began() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    writer = Writer(session.attach())
    await settle()
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await settle()
    for alias in ("other", None):
        with pytest.raises(EngineUnavailable) as refused:
            await fleet.registry.resolve("t", alias, CONFIG)
        assert refused.value.code == "shutting_down"
        assert refused.value.retry_after_s is not None
    # The session's own client may come back meanwhile: it is told of the end like any other.
    seat = session.resume(writer.attachment.token, writer.written[-1]["server_event_seq"])
    assert isinstance(seat, Attachment)
    again = Writer(seat)
    fleet.backends[0].stay_silent(operations=("a",))
    assert (await waiting).action == "silence"
    await draining
    await again.task
    assert reasons(again) == ["shutdown"]
    assert reasons(writer) == []


async def test_a_close_that_came_first_keeps_its_reason() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    writer = Writer(session.attach())
    await settle()
    closing = asyncio.create_task(session.close("client_close"))
    await asyncio.gather(closing, fleet.registry.drain(5.0))
    await writer.task
    assert reasons(writer) == ["client_close"]


async def test_a_fault_during_the_drain_ends_its_own_session_alone() -> None:
    fleet = make_fleet()
    sick, well = [await fleet.registry.resolve("t", name, CONFIG) for name in ("sick", "well")]
    writers = [Writer(session.attach()) for session in (sick, well)]
    await settle()
    waiting = asyncio.create_task(well.operation(AppendInput("a", frame()), 60.0))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await settle()
    fleet.built[sick.id].break_outputs(RuntimeError("bug"))
    await sick.closed.wait()
    assert not draining.done()
    fleet.built[well.id].stay_silent(operations=("a",))
    assert (await waiting).action == "silence"
    await draining
    for writer in writers:
        await writer.task
    assert [reasons(writer) for writer in writers] == [["internal_error"], ["shutdown"]]


async def test_a_backend_that_hangs_costs_its_deadline() -> None:
    limits = RegistryLimits(runtime=RuntimeLimits(deadlines=CallDeadlines(close_s=3.0)))
    fleet = make_fleet(limits)
    hung, well = [await fleet.registry.resolve("t", name, CONFIG) for name in ("hung", "well")]
    writers = [Writer(session.attach()) for session in (hung, well)]
    await settle()
    fleet.built[hung.id].hold("close")
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await settle()
    assert not well.is_open
    await fleet.clock.advance(3.5)
    await draining
    for writer in writers:
        await writer.task
        assert reasons(writer) == ["shutdown"]
    fleet.built[hung.id].free_all()


async def test_two_drains_are_one() -> None:
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    drains = [asyncio.create_task(fleet.registry.drain(20.0)) for _ in range(2)]
    await settle()
    assert not any(drain.done() for drain in drains)
    fleet.backends[0].stay_silent(operations=("a",))
    await waiting
    await asyncio.gather(*drains)
    assert session.closed.is_set()


async def test_a_cancelled_drain_has_still_closed_the_door() -> None:
    """The second signal: whoever waits goes, but nobody comes in any more."""
    fleet = make_fleet()
    session = await fleet.registry.resolve("t", "cam", CONFIG)
    waiting = asyncio.create_task(session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    draining = asyncio.create_task(fleet.registry.drain(20.0))
    await settle()
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    with pytest.raises(VigilError):
        await fleet.registry.resolve("t", "new", CONFIG)
    await fleet.registry.drain(0.0)
    with pytest.raises(VigilError):
        await waiting
