"""Which values of a label have series of their own: those that count most, and no series ever falls."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.shown import OTHERS, REVIEW, Shown


def test_who_counts_most_takes_the_place_of_who_hardly_counts() -> None:
    forgotten: list[str] = []
    shown = Shown(2, forgotten.append)
    assert [shown.count(value) for value in ("early", "busy", "late")] == ["early", "busy", OTHERS]
    for _ in range(REVIEW // 2):
        shown.count("late")
        shown.count("busy")
    assert forgotten == ["early"]
    assert [shown.count(value) for value in ("early", "busy", "late")] == [OTHERS, "busy", "late"]


def test_nearly_equal_ones_do_not_change_places() -> None:
    forgotten: list[str] = []
    shown = Shown(1, forgotten.append)
    for number in range(3 * REVIEW):
        shown.count("one" if number % 5 < 2 else "other one")
    assert not forgotten


def test_one_that_is_named_like_all_the_rest_takes_nothing_from_them() -> None:
    forgotten: list[str] = []
    shown = Shown(1, forgotten.append)
    assert shown.count(OTHERS) == OTHERS
    for _ in range(2 * REVIEW):
        shown.count("busy")
    assert shown.count("busy") == "busy" and OTHERS not in forgotten


@given(st.lists(st.sampled_from([*"abcdefg", OTHERS]), max_size=60), st.integers(1, 4))
def test_there_are_never_more_than_so_many_and_no_series_falls(values: list[str], most: int) -> None:
    series: Counter[str] = Counter()
    shown = Shown(most, lambda value: series.pop(value))
    for value in values * 400:
        before = series.copy()
        label = shown.count(value)
        series[label] += 1
        assert len(series) <= most + 1
        assert all(series[each] >= before[each] for each in series if each in before)
        assert series[OTHERS] >= before[OTHERS], "what was counted there stays there"
        assert label in (value, OTHERS)
