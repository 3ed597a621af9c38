"""Race: live pictures arrive faster than the backend takes them.

Contract: the newest wait, older ones give way and are answered as thinned, and never does a commit lose all
that it seals; what waits before a close does not put it off for longer than a fixed time.
"""

import pytest

from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.session.commands import AckEvents, AppendInput, Close, CommitInput
from orchestrator.session.units import FrameInput, InputUnit
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig, open_rig


async def blocked() -> Rig:
    rig = await open_rig(limits=RuntimeLimits(glimpses=2))
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("first", frame()))
    await settle()
    return rig


def taken(rig: Rig) -> list[str]:
    return [call.arguments[2] for call in rig.backend.finished if call.method == "append"]


async def test_the_newest_pictures_wait() -> None:
    rig = await blocked()
    for number in range(6):
        await rig.session.submit(AppendInput(f"op{number}", frame()))
        await rig.session.submit(AckEvents(0))
    assert rig.session.statistics()["thinned"] == 4
    # Whoever asks what became of one is told so, and sending it again does no harm.
    outcome = await rig.session.operation(AppendInput("op0", frame()), 1.0)
    assert (outcome.action, outcome.record) == ("silence", {"reason": "thinned"})
    rig.backend.free("append")
    await settle()
    assert taken(rig) == ["first", "op4", "op5"]
    assert rig.session.statistics()["pending_input_bytes"] == 0
    await rig.session.close("over")


async def test_what_a_commit_seals_is_not_thinned_by_what_follows() -> None:
    rig = await blocked()
    for number in range(3):
        await rig.session.submit(AppendInput(f"a{number}", frame()))
    await rig.session.submit(CommitInput())
    for number in range(3):
        await rig.session.submit(AppendInput(f"b{number}", frame()))
    rig.backend.free("append")
    await settle()
    assert taken(rig) == ["first", "a1", "a2", "b1", "b2"]
    assert rig.backend.methods().count("commit") == 1
    await rig.session.close("over")


@pytest.mark.parametrize(
    "kept",
    [
        {"unit": InputUnit((FrameInput(b"jpeg", 0),), lossless=True)},
        {"unit": InputUnit((FrameInput(b"jpeg", 0),), b"\0" * 64)},
        {"unit": InputUnit((), b"\0" * 64)},
        {"unit": frame(), "force_barge_in": True},
        {"unit": frame(), "item_id": "mine"},
    ],
)
async def test_all_but_live_pictures_wait_however_many(kept: dict[str, object]) -> None:
    rig = await blocked()
    for number in range(5):
        await rig.session.submit(AppendInput(f"op{number}", **kept))  # type: ignore[arg-type]
    rig.backend.free("append")
    await settle()
    assert taken(rig) == ["first", *(f"op{number}" for number in range(5))]
    await rig.session.close("over")


async def test_a_close_is_put_off_for_a_fixed_time_at_most() -> None:
    rig = await blocked()
    unit = InputUnit((FrameInput(b"jpeg", 0),), lossless=True)
    for number in range(40):
        await rig.session.submit(AppendInput(f"op{number}", unit))
    await rig.session.submit(Close("client_close"))
    await rig.clock.advance(1.9)
    assert "close" not in rig.backend.methods()
    await rig.clock.advance(0.4)
    assert rig.backend.methods()[-1] == "close"
    assert rig.backend.methods().count("append") == 8  # each had its grace, as long as there was time
    assert rig.session.closed.is_set()
    assert rig.session.statistics()["pending_input_bytes"] == 0
