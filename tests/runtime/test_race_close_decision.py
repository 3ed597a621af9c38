"""Race: a close arrives while a decision is in flight.

Contract: the waiter of the decision is woken with a typed error, the active response ends exactly once, the
client is told after the backend closed, and nothing is emitted after the end. A backend that does not close
in time keeps its slot but not its client.
"""

import asyncio

import pytest

from orchestrator.session.backend import Action, Decision, Delegation, TextDelta, TickStarted
from orchestrator.session.commands import AppendInput, Close
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import Conflict
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig


async def test_the_waiter_is_woken_and_the_response_ends_once(rig: Rig) -> None:
    events = rig.session.events()
    waiting = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    rig.backend.emit(
        TickStarted(Fence(), 1, ("a",)),
        Decision(Fence(), 1, Action.RESPONSE),
        TextDelta(Fence(), "half"),
    )
    await settle()
    await rig.session.close("client_close")
    with pytest.raises(Conflict) as ended:
        await waiting
    assert ended.value.code == "session_closed"
    types = [event.type async for event in events]
    assert types.count("response.done") == 1
    assert types[-1] == "session.closed"


async def test_work_queued_behind_the_close_is_refused(rig: Rig) -> None:
    rig.backend.hold("close")
    closing = asyncio.create_task(rig.session.close("client_close"))
    await settle()
    with pytest.raises(Conflict) as refused:
        await rig.session.submit(AppendInput("late", frame()))
    assert refused.value.code == "session_closed"
    rig.backend.free("close")
    await closing


async def test_a_queued_append_before_the_close_runs_first(rig: Rig) -> None:
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("a", frame()))
    await rig.session.submit(AppendInput("b", frame()))
    await rig.session.submit(Close())
    await settle()
    rig.backend.free("append")
    await rig.session.closed.wait()
    assert rig.backend.methods() == ["open", "append", "append", "close"]


async def test_a_close_that_hangs_tells_the_client_and_keeps_the_slot(rig: Rig) -> None:
    events = rig.session.events()
    rig.backend.hold("close")
    closing = asyncio.create_task(rig.session.close("client_close"))
    await rig.clock.advance(10.0)
    await closing
    assert [event.type async for event in events] == ["session.closed"]
    assert not rig.session.released
    rig.backend.free("close")
    assert await rig.session.release()
    assert rig.session.released


async def test_what_the_backend_says_last_is_told_before_the_end(rig: Rig) -> None:
    events = rig.session.events()
    rig.backend.hold("close")
    closing = asyncio.create_task(rig.session.close("client_close"))
    await settle()
    rig.backend.emit(*(Delegation(Fence(), f"dlg{n}", "cancelled", "why?") for n in range(5)))
    rig.backend.free("close")
    await closing
    types = [event.type async for event in events]
    assert types[-6:] == [*["vigil.delegation"] * 5, "session.closed"]
