"""The search ends, at what is carried and one more is not, after few tries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.load.search import Search


def found(search: Search, carried: int) -> list[int]:
    tried: list[int] = []
    while (sessions := search.next()) is not None:
        tried.append(sessions)
        search.tell(sessions, sessions <= carried)
        assert len(tried) < 100
    return tried


@given(st.integers(1, 2000), st.integers(0, 3000), st.integers(1, 64))
def test_it_finds_exactly_what_is_carried(most: int, carried: int, first: int) -> None:
    search = Search(most, first=first)
    tried = found(search, carried)
    assert search.capacity == min(most, carried)
    assert search.bounded == (carried < most)
    assert len(tried) == len(set(tried))
    assert len(tried) <= 2 * math.log2(most) + 3
    assert all(1 <= each <= most for each in tried)


@given(st.integers(1, 2000), st.integers(1, 3000), st.floats(0.01, 0.5))
def test_near_enough_is_never_too_much(most: int, carried: int, within: float) -> None:
    search = Search(most, within=within)
    found(search, carried)
    assert search.capacity <= carried
    assert min(most, carried) - search.capacity <= max(1.0, within * search.capacity)


def test_nothing_to_try() -> None:
    with pytest.raises(ValueError):
        Search(0)
