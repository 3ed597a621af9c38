"""Percentiles of a load are nearest ranks: values that were measured, never between two of them."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from evals.load.job import LATE, percentile


@given(st.lists(st.floats(0.0, 10.0) | st.just(LATE), min_size=1), st.integers(0, 100))
def test_it_is_the_least_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    ordered, share = sorted(values), Fraction(percent, 100)

    def enough(value: float) -> bool:
        return sum(each <= value for each in ordered) >= share * len(ordered)

    assert percentile(ordered, percent / 100) == next(value for value in ordered if enough(value))


def test_a_twentieth_that_is_late_is_not_seen_at_95() -> None:
    assert percentile([0.1] * 19 + [LATE], 0.95) == 0.1
    assert percentile([0.1] * 18 + [LATE] * 2, 0.95) == LATE


def test_of_nothing() -> None:
    assert percentile([], 0.5) is None
