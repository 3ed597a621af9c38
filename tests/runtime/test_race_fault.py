"""Race: something raises inside one session.

Contract: whatever raises (a backend call, its output stream, the log) ends that session alone, with one typed
error event, a failed response if one was active, and the end; every waiter is woken with the error; other
sessions notice nothing.
"""

import asyncio
from typing import Any, cast

import pytest

from orchestrator.session.backend import Action, BackendOutput, Decision, TextDelta
from orchestrator.session.commands import AppendInput
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import ServerFault, VigilError
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig, make_fleet, open_rig


async def ends_with_one_error(rig: Rig, types: list[str]) -> None:
    await rig.session.closed.wait()
    assert [t for t in types if t in ("error", "response.done", "session.closed")] == [
        "error",
        "response.done",
        "session.closed",
    ]
    assert rig.backend.closed
    assert rig.session.released


async def active(rig: Rig) -> asyncio.Task[object]:
    waiting = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    rig.backend.emit(Decision(Fence(), 1, Action.RESPONSE), TextDelta(Fence(), "half"))
    await settle()
    return waiting


async def test_a_backend_call_raises() -> None:
    rig = await open_rig()
    waiting = await active(rig)
    events = rig.session.events()
    rig.backend.fail("append", RuntimeError("bug"))
    with pytest.raises(ServerFault):
        await rig.session.operation(AppendInput("b", frame()), 60.0)
    await ends_with_one_error(rig, [event.type async for event in events])
    with pytest.raises(VigilError):
        await waiting


@pytest.mark.parametrize("error", [RuntimeError("bug"), None])
async def test_the_output_stream_raises_or_ends(error: Exception | None) -> None:
    rig = await open_rig()
    waiting = await active(rig)
    events = rig.session.events()
    rig.backend.break_outputs(error)
    await ends_with_one_error(rig, [event.type async for event in events])
    with pytest.raises(VigilError):
        await waiting


async def test_an_absurd_output_breaks_the_core() -> None:
    rig = await open_rig()
    await active(rig)
    events = rig.session.events()
    rig.backend.emit(TextDelta(Fence(), cast(Any, None)))
    await ends_with_one_error(rig, [event.type async for event in events])


async def test_the_core_itself_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await open_rig()
    waiting = await active(rig)
    events = rig.session.events()

    def broken(now: float, item: BackendOutput) -> None:
        raise AssertionError("core")

    monkeypatch.setattr(rig.session._core, "handle", broken)
    rig.backend.emit(TextDelta(Fence(), "more"))
    assert [event.type async for event in events] == ["error", "session.closed"]
    with pytest.raises(ServerFault):
        await waiting
    await rig.session.closed.wait()
    assert not rig.backend.closed
    assert await rig.session.release()


async def test_the_log_raises() -> None:
    rig = await open_rig()
    waiting = await active(rig)
    events = rig.session.events()

    def full(kind: str, data: object) -> int:
        raise OSError("disk full")

    rig.log.append = full  # type: ignore[method-assign]
    await rig.session.submit(AppendInput("b", frame()))
    rig.backend.emit(*[TextDelta(Fence(0, 9), "next turn")])
    types = [event.type async for event in events]
    assert types[-1] == "session.closed"
    assert "error" in types
    with pytest.raises(VigilError):
        await waiting


async def test_the_neighbour_notices_nothing() -> None:
    fleet = make_fleet()
    from tests.runtime.conftest import CONFIG

    one = await fleet.registry.resolve("t", "one", CONFIG)
    two = await fleet.registry.resolve("t", "two", CONFIG)
    events = two.events()
    fleet.built[one.id].break_outputs(RuntimeError("bug"))
    await one.closed.wait()
    waiting = asyncio.create_task(two.operation(AppendInput("a", frame()), 5.0))
    await settle()
    fleet.built[two.id].stay_silent(operations=("a",))
    assert (await waiting).action == "silence"
    assert events.statistics()["queued"] == 2
    await fleet.registry.drain(0.0)
