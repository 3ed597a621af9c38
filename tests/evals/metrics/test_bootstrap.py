"""Intervals by clip: seeded, around the value, paired."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.metrics.bootstrap import difference, draws, figure, figures, resampled
from evals.metrics.measures import BY_NAME
from evals.metrics.tally import Tally

ACCURACY, P90 = BY_NAME["accuracy"], BY_NAME["delay_p90"]


def shares(*pairs: tuple[float, float]) -> list[Tally]:
    return [Tally({"accuracy": pair}) for pair in pairs]


def test_a_value_is_the_ratio_of_sums_and_its_interval_holds_it() -> None:
    found = figure(ACCURACY, shares((1, 1), (0, 3), (2, 2), (1, 2)), draws(4, seed=1))
    assert found is not None
    assert (found.value, found.count) == (0.5, 8)
    assert found.low is not None and found.high is not None
    assert 0 <= found.low < 0.5 < found.high <= 1


def test_one_clip_has_no_interval_and_none_has_no_value() -> None:
    found = figure(ACCURACY, [*shares((1, 2)), Tally()], draws(2, seed=1))
    assert found is not None and (found.value, found.low) == (0.5, None)
    assert figure(ACCURACY, [Tally()], draws(1, seed=1)) is None
    assert figures([], draws(0, seed=1)) == {}


def test_what_is_perfect_is_not_certain() -> None:
    tallies = [Tally({"accuracy": (4, 4), "answered": (0, 3), "false_alerts_per_h": (0, 0.5)})] * 10
    found = figures(tallies, draws(10, seed=1))
    assert (found["accuracy"].low, found["accuracy"].high) == (pytest.approx(0.025**0.1), 1)
    assert (found["answered"].low, found["answered"].high) == (0, pytest.approx(1 - 0.025**0.1))
    # No event in five hours: up to 3.69 of them would be no surprise.
    assert (found["false_alerts_per_h"].low, found["false_alerts_per_h"].high) == (
        0,
        pytest.approx(0.738, abs=1e-3),
    )


def test_percentiles_pool_the_values_of_all_clips() -> None:
    tallies = [Tally(values={"delay_s": [0.0, 1.0]}), Tally(values={"delay_s": [10.0]}), Tally()]
    found = figure(P90, tallies, draws(3, seed=1))
    assert found is not None
    assert found.value == pytest.approx(8.2)
    assert found.count == 3
    assert found.low is not None and found.high == 10.0


@given(st.lists(st.lists(st.floats(-9, 9), max_size=5), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_a_percentile_of_a_draw_is_that_of_the_values_drawn(clips: list[list[float]], seed: int) -> None:
    drawn = draws(len(clips), seed=seed, times=5)
    found = resampled(P90, [Tally(values={"delay_s": values}) for values in clips], drawn)
    for counts, one in zip(drawn, found, strict=True):
        pool = [v for values, times in zip(clips, counts, strict=True) for v in values * int(times)]
        assert (np.isnan(one) and not pool) or one == pytest.approx(np.quantile(pool, 0.9))


def test_the_same_record_gives_the_same_interval() -> None:
    tallies = shares((1, 1), (0, 3), (2, 2))
    assert figure(ACCURACY, tallies, draws(3, seed=5)) == figure(ACCURACY, tallies, draws(3, seed=5))


def test_a_difference_that_is_the_same_in_every_clip_has_no_width() -> None:
    first, second = shares((1, 4), (2, 4), (0, 4)), shares((2, 4), (3, 4), (1, 4))
    found = difference(ACCURACY, first, second, draws(3, seed=1))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))
    assert difference(ACCURACY, first, [Tally()] * 3, draws(3, seed=1)) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=2, max_size=8))
def test_intervals_of_shares_are_shares_in_order(pairs: list[tuple[int, int]]) -> None:
    tallies = shares(*((float(min(a, b)), float(b)) for a, b in pairs))
    found = figure(ACCURACY, tallies, draws(len(tallies), seed=3, times=200))
    assert found is not None and found.low is not None and found.high is not None
    assert 0 <= found.low <= found.high <= 1
