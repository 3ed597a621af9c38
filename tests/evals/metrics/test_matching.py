"""The matching of acts and slots, held against trying out every choice."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.metrics.matching import NEVER, Costs, match, match_times

_cost = st.one_of(st.just(NEVER), st.integers(0, 9).map(float))


@st.composite
def tables(draw: st.DrawFn) -> Costs:
    rows, columns = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    cells = draw(st.lists(_cost, min_size=rows * columns, max_size=rows * columns))
    return np.array(cells, dtype=np.float64).reshape(rows, columns)


def best(costs: Costs) -> tuple[int, float]:
    """Most pairs, and the least sum of so many, by trying out all."""
    rows, columns = costs.shape
    for size in range(min(rows, columns), 0, -1):
        sums = [
            sum(costs[r, c] for r, c in zip(some, order, strict=True))
            for some in combinations(range(rows), size)
            for order in permutations(range(columns), size)
        ]
        finite = [total for total in sums if np.isfinite(total)]
        if finite:
            return size, min(finite)
    return 0, 0.0


@given(tables())
@settings(max_examples=300, deadline=None)
def test_no_choice_has_more_pairs_or_costs_less(costs: Costs) -> None:
    pairs = match(costs)
    assert len({r for r, _ in pairs}) == len({c for _, c in pairs}) == len(pairs)
    assert all(np.isfinite(costs[pair]) for pair in pairs)
    assert (len(pairs), sum(costs[pair] for pair in pairs)) == best(costs)
    assert pairs == sorted(pairs)


def test_a_slot_in_a_crowd_is_not_lost_to_a_nearer_act() -> None:
    # The act at 5 lies nearer to the first span, but the second has no other.
    spans = [(0.0, 6.0, 5.0), (5.0, 9.0, 9.0)]
    pairs = match_times([3.0, 5.0], spans, [[True, True], [True, True]])
    assert pairs == [(0, 0), (1, 1)]


def test_both_ends_of_a_span_belong_to_it() -> None:
    spans = [(1.0, 2.0, 1.0)]
    assert [bool(match_times([at], spans, [[True]])) for at in (0.9, 1.0, 2.0, 2.1)] == [
        False,
        True,
        True,
        False,
    ]
    assert match_times([1.5], spans, [[False]]) == []


def test_three_hundred_acts_and_slots_are_matched_in_order() -> None:
    times = [float(n) for n in range(300)]
    spans = [(n - 1.0, n + 5.0, float(n)) for n in range(300)]
    pairs = match_times(times, spans, [[True] * 300] * 300)
    assert pairs == [(n, n) for n in range(300)]
