"""Race: a cancel arrives while an append is in flight.

Contract: the fence moves at once and nothing of the old epoch is emitted any more; the append in flight gets
a short grace, then is aborted and rolled back exactly; appends queued before the cancel run before it; the
next append carries the new epoch; the client sees one cancelled response and no error for its own append.
"""

import asyncio

import pytest

from orchestrator.session.backend import Action, Decision, TextDelta
from orchestrator.session.commands import AppendInput, Cancel
from orchestrator.session.events import ResponseDone
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import Conflict
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig


async def speaking(rig: Rig) -> None:
    await rig.session.submit(AppendInput("a", frame()))
    await settle()
    rig.backend.emit(Decision(Fence(), 1, Action.RESPONSE), TextDelta(Fence(), "half"))
    await settle()


async def test_the_fence_moves_before_the_append_in_flight_ends(rig: Rig) -> None:
    await speaking(rig)
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("b", frame()))
    await settle()
    await rig.session.submit(Cancel())
    await settle()
    assert rig.session.statistics()["epoch"] == 1
    assert "cancel" not in rig.backend.methods()


async def test_the_append_is_rolled_back_and_the_waiter_learns_why(rig: Rig) -> None:
    await speaking(rig)
    events = rig.session.events()
    rig.backend.hold("append")
    waiting = asyncio.create_task(rig.session.operation(AppendInput("b", frame()), 60.0))
    silent = AppendInput("c", frame())
    await settle()
    await rig.session.submit(Cancel())
    await rig.clock.advance(0.25)
    with pytest.raises(Conflict) as refused:
        await waiting
    assert refused.value.code == "stale_fence"
    assert [call.arguments[2] for call in rig.backend.cancelled] == ["b"]
    assert rig.session.statistics()["pending_input_bytes"] == 0
    rig.backend.free("append")
    await rig.session.submit(silent)
    await settle()
    assert rig.backend.calls[-1].arguments[1] == Fence(1, 0)
    await rig.session.close("over")
    seen = [event async for event in events]
    assert [e.status for e in seen if isinstance(e, ResponseDone)] == ["cancelled"]
    assert "error" not in [event.type for event in seen]


async def test_an_append_that_ends_within_the_grace_is_kept(rig: Rig) -> None:
    await speaking(rig)
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("b", frame()))
    await settle()
    await rig.session.submit(Cancel())
    await rig.clock.advance(0.2)
    rig.backend.free("append")
    await settle()
    assert rig.backend.cancelled == []
    assert rig.backend.methods()[-3:] == ["append", "tell", "cancel"]


async def test_appends_queued_before_the_cancel_are_not_overtaken(rig: Rig) -> None:
    await speaking(rig)
    rig.backend.hold("append")
    for name in "bcd":
        await rig.session.submit(AppendInput(name, frame()))
    await rig.session.submit(Cancel())
    await settle()
    assert rig.session.statistics()["epoch"] == 0
    rig.backend.free("append")
    await settle()
    assert rig.backend.methods()[1:] == ["append"] * 4 + ["tell", "cancel"]


async def test_a_hung_append_before_the_cancel_costs_one_grace_each(rig: Rig) -> None:
    await speaking(rig)
    rig.backend.hold("append")
    for name in "bc":
        await rig.session.submit(AppendInput(name, frame()))
    await rig.session.submit(Cancel())
    await rig.clock.advance(0.5)
    assert rig.backend.methods()[-1] == "cancel"
    assert rig.session.statistics()["pending_input_bytes"] == 0
    rig.backend.free("append")


async def test_late_output_of_the_old_epoch_is_dropped(rig: Rig) -> None:
    await speaking(rig)
    events = rig.session.events()
    rig.backend.hold("cancel")
    await rig.session.submit(Cancel())
    await settle()
    rig.backend.emit(TextDelta(Fence(), "ghost"))
    await settle()
    rig.backend.free("cancel")
    await settle()
    done = [await anext(events) for _ in range(6)]
    assert [e.text for e in done if isinstance(e, ResponseDone)] == ["half"]
    assert "response.output_text.delta" not in [event.type for event in done]
