"""An engine that pours out errors: a kind is told at once, then once a second, with all its operations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridges.duplex_client.link import EngineFault
from orchestrator.backends.native.gathered import KINDS, Gathered
from orchestrator.session.backend import Failed
from orchestrator.session.fence import Fence
from tests.backends.native.harness import open_rig
from tests.fakes.link import listen


def failed(code: str, *operations: str) -> Failed:
    return Failed(Fence(), code, f"about {code}", operations=operations)


def test_the_first_of_a_kind_is_told_at_once_and_what_follows_together() -> None:
    gathered = Gathered()
    assert gathered.take(failed("a")) == failed("a")
    assert gathered.take(failed("b")) == failed("b")
    assert [gathered.take(failed("a", str(number))) for number in range(3)] == [None] * 3
    (told,) = gathered.due()
    assert (told.message, told.operations) == ("about a (3 such errors)", ("0", "1", "2"))
    assert gathered.busy and gathered.due() == []
    assert not gathered.busy and gathered.take(failed("a")) is not None


@given(st.lists(st.one_of(st.none(), st.integers(0, 2 * KINDS)), max_size=200))
def test_no_operation_is_lost_and_what_is_told_at_a_time_is_bounded(steps: list[int | None]) -> None:
    gathered, told, asked = Gathered(), [], []
    for number, step in enumerate(steps):
        if step is None:
            due = gathered.due()
            assert len(due) <= KINDS
            told += due
        else:
            asked.append(str(number))
            now = gathered.take(failed(f"code{step}", str(number)))
            told += [now] if now is not None else []
    told += gathered.due()
    assert sorted(each for one in told for each in one.operations) == sorted(asked)


async def test_a_storm_reaches_the_client_once_a_second() -> None:
    rig = await open_rig(script=lambda link, unit: [listen()])
    for _ in range(4):
        await rig.say(*[EngineFault("internal_error", "it hurts") for _ in range(50)])
        await rig.clock.advance(0.5)
    await rig.clock.advance(5)
    assert rig.codes() == ["internal_error"] * 3
    assert rig.backend.statistics()["responses"]["errors_gathered"] == 199
    await rig.append(1000)
    assert len(rig.link.units) == 1
    await rig.say(EngineFault("internal_error", "it hurts again"))
    assert len(rig.codes()) == 4
