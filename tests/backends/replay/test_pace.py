"""When ticks begin: at once where the frames have a pace of their own, else at the session's phase."""

from __future__ import annotations

import pytest

from orchestrator.backends.replay.decide import Pace
from orchestrator.backends.replay.place import Settled
from orchestrator.session.backend import TickDone
from tests.backends.replay.harness import Answer, Session


def at_phase(phase: float) -> Pace:
    """A pace whose turns are at that share of each second."""

    def turn_after(moment: float, period_s: float) -> float:
        turn = phase * period_s
        while turn < moment:
            turn += period_s
        return turn

    return Pace(1000, turn_after)


def test_frames_that_are_a_period_apart_are_never_held_back() -> None:
    pace = at_phase(0.7)
    assert pace.wait_s(5.0, 0, None) == 0, "the first one"
    pace.started(5.0, 0)
    assert pace.wait_s(5.1, 1000, None) == 0, "however fast they come"
    assert pace.wait_s(5.1, 900, None) == 0, "a tenth of a period of jitter is forgiven"
    assert pace.wait_s(5.1, 2000, 1000) == 0, "also where one of them waits still"


def test_frames_that_come_closer_wait_for_the_phase() -> None:
    pace = at_phase(0.7)
    pace.started(5.0, 0)
    assert pace.wait_s(5.1, 250, None) == pytest.approx(0.6)
    assert pace.wait_s(5.7, 600, 300) == 0
    pace.started(5.7, 600)
    assert pace.wait_s(6.0, 1600, 1350) == pytest.approx(0.7), (
        "a frame a period after the last tick is no pace"
    )


def test_a_late_tick_delays_none_after_it_and_two_are_never_together() -> None:
    pace = at_phase(0.7)
    pace.started(5.95, 0)
    assert pace.wait_s(6.0, 100, None) == pytest.approx(0.7)
    pace.started(6.3, 300)
    assert pace.wait_s(6.4, 400, None) == pytest.approx(1.3), "not 0.4 s after the last"


def test_without_a_phase_they_follow_each_other() -> None:
    pace = Pace(1000, Settled().turn_after)
    pace.started(5.95, 0)
    assert pace.wait_s(6.0, 100, None) == pytest.approx(0.95)


async def test_a_tick_stands_for_those_that_had_no_turn() -> None:
    """While the engine is busy for two periods, the frames of both ride the next tick."""
    async with Session([Answer(delay_s=2.5), "</silence>"]) as s:
        told: list[bool] = []
        s.place.answered = lambda tick: told.append(tick.coalesced)  # type: ignore[method-assign]
        await s.frame()
        await s.clock.advance(1.0)
        await s.frame()
        await s.clock.advance(1.0)
        await s.frame()
        await s.clock.advance(0.5)
        assert [row["frames"] for row in s.rows] == [1, 2] and told == [False, True]
        await s.clock.advance(0.5)
        await s.frame()
        assert told == [False, True, False]


async def test_who_gets_no_turn_in_time_is_told_so_and_shown_later() -> None:
    async with Session() as s:
        refused: list[float] = []
        s.place.refused = lambda waited_s, period_s: refused.append(waited_s)  # type: ignore[method-assign]
        for other in ("a", "b"):
            await s.permits.live(other)
        operations = [await s.frame() for _ in range(2)]
        await s.clock.advance(2.9)
        assert not s.outputs and s.permits.statistics()["waiting"]["live"] == 1
        await s.clock.advance(0.2)
        (done,) = s.of(TickDone)
        assert (done.error_code, set(done.operations)) == ("engine_overloaded", set(operations))
        assert refused == [3.0]
        assert s.permits.statistics()["waiting"]["live"] == 1, "it asks for the next turn"
        s.permits.done("a")
        await s.clock.advance(0.0)
        assert s.rows[-1]["frames"] == 2 and len(s.engine.decisions) == 1
        assert s.permits.statistics()["running"]["live"] == 1, "the other one's"


async def test_a_session_that_closes_while_it_waits_for_a_turn_leaves_no_permit_behind() -> None:
    async with Session() as s:
        for other in ("a", "b"):
            await s.permits.live(other)
        await s.frame()
        s.permits.done("a")  # given at the very moment of the close
        await s.backend.close("over")
        assert s.permits.statistics()["running"]["live"] == 1
        assert s.permits.statistics()["waiting"]["live"] == 0
