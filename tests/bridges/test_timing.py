"""Durations are counted in buckets, of which each has all that were shorter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridges.timing import Durations


@given(st.lists(st.floats(0, 20)))
def test_each_bucket_has_what_took_no_longer(seconds: list[float]) -> None:
    durations = Durations((0.1, 1.0, 10.0))
    for each in seconds:
        durations.add(each)
    assert durations.buckets() == [
        (end, sum(each <= end for each in seconds)) for end in (0.1, 1.0, 10.0, float("inf"))
    ]
    assert len(durations) == len(seconds) and durations.total_s == sum(seconds)
