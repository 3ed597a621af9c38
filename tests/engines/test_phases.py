"""Phases: as far from each other as those who came before allow, and kept as long as the session is there."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.phases import Phases


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=80))
def test_nobody_stands_closer_than_half_the_widest_gap_that_was_there(steps: list[tuple[bool, int]]) -> None:
    phases, there = Phases(), dict[str, float]()
    for comes, number in steps:
        name = f"s{number}"
        if not comes:
            phases.leave(name)
            there.pop(name, None)
            continue
        ordered = sorted(there.values())
        widest = max((b - a for a, b in pairwise([*ordered, ordered[0] + 1])), default=1.0) if ordered else 1
        mine = phases.take(name)
        assert 0 <= mine < 1
        if name in there:
            assert mine == there[name]
        elif ordered:
            assert min(min(abs(mine - o), 1 - abs(mine - o)) for o in ordered) == pytest.approx(widest / 2)
        there[name] = mine
    assert len(phases) == len(there)


@given(st.integers(1, 200))
def test_gaps_differ_by_no_more_than_twice_among_those_who_only_came(sessions: int) -> None:
    phases = Phases()
    ordered = sorted(phases.take(f"s{number}") for number in range(sessions))
    gaps = [b - a for a, b in pairwise([*ordered, ordered[0] + 1])]
    assert max(gaps) <= 2 * min(gaps) + 1e-9


@given(st.integers(1, 20), st.floats(0, 1e6), st.floats(0.08, 10))
def test_turns_come_once_a_period_and_never_before(sessions: int, moment: float, period_s: float) -> None:
    phases = Phases()
    for number in range(sessions):
        turn = phases.turn_after(f"s{number}", moment, period_s)
        assert moment - 1e-6 <= turn < moment + period_s + 1e-6
        after = phases.turn_after(f"s{number}", turn + period_s / 2, period_s)
        assert after == pytest.approx(turn + period_s)
