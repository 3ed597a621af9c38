"""Race: commands arrive faster than the backend takes them.

Contract: the mailbox is bounded; one command too many is refused at once with ``input_backpressure`` and
nothing of it is retained; cancel and close still find room; everything that was admitted is executed once.
"""

import pytest

from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.session.commands import AppendInput, Cancel, ClearQuery, CommitInput
from orchestrator.session.limits import SessionLimits
from orchestrator.wire.errors import ResourceExhausted
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig, open_rig


async def full_rig() -> Rig:
    rig = await open_rig(limits=RuntimeLimits(mailbox=4, mailbox_reserve=1))
    rig.backend.hold("append")
    for number in range(5):
        await rig.session.submit(AppendInput(f"op{number}", frame()))
        await settle()
    return rig


async def test_one_too_many_is_refused_and_not_retained() -> None:
    rig = await full_rig()
    with pytest.raises(ResourceExhausted) as refused:
        await rig.session.submit(AppendInput("late", frame(), event_id="evt_1"))
    assert (refused.value.code, refused.value.event_id) == ("input_backpressure", "evt_1")
    rig.backend.free("append")
    await settle()
    assert [call.arguments[2] for call in rig.backend.finished[1:]] == [f"op{n}" for n in range(5)]
    await rig.session.submit(AppendInput("late", frame()))
    await settle()
    assert rig.session.statistics()["pending_input_bytes"] == 0
    await rig.session.close("over")


async def test_cancel_and_close_find_room() -> None:
    rig = await full_rig()
    await rig.session.submit(Cancel())
    with pytest.raises(ResourceExhausted):
        await rig.session.submit(Cancel())
    with pytest.raises(ResourceExhausted):
        await rig.session.submit(ClearQuery())
    rig.backend.free("append")
    await rig.session.close("over")
    assert rig.backend.methods().count("append") == 5


async def test_five_commits_behind_a_blocked_call_leave_one_refused() -> None:
    rig = await open_rig(session_limits=SessionLimits(max_pending_commits=4))
    rig.backend.hold("append")
    for number in range(4):
        await rig.session.submit(AppendInput(f"op{number}", frame()))
        await rig.session.submit(CommitInput())
    with pytest.raises(ResourceExhausted) as refused:
        await rig.session.submit(CommitInput())
    assert refused.value.code == "input_backpressure"
    rig.backend.free("append")
    await settle()
    assert rig.backend.methods().count("commit") == 4
    await rig.session.close("over")
