"""Times of live streams: never back, true to the stamps, sane when the stamps are not."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bridges.media_clock import LiveClock, Repeats

STAMPS = st.one_of(st.none(), st.floats(-1e9, 1e9))


@given(st.lists(st.tuples(st.sampled_from(["video", "sound"]), STAMPS, st.floats(0, 20_000)), max_size=60))
def test_no_track_ever_goes_back_or_leaves_real_time(steps: list[tuple[str, float | None, float]]) -> None:
    """Whatever the stamps are, a track is at most its threshold of a leap a step away from real time."""
    clock, arrived = LiveClock(500.0, 0.0), 0.0
    last: dict[str, int] = {}
    for track, stamp, passed in steps:
        arrived += passed
        time_ms = clock.time_of(track, stamp, arrived)
        assert time_ms >= last.get(track, 500)
        last[track] = time_ms
        assert time_ms <= 500 + arrived + 10_001 * len(steps)


@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=50), st.integers(-(10**9), 10**9))
def test_true_stamps_are_kept_to_the_millisecond(gaps: list[int], first: int) -> None:
    """Of any rate, also a variable one, and whenever they come."""
    clock, stamp = LiveClock(0.0, 0.0), float(first)
    times = [clock.time_of("video", stamp, 0.0)]
    for gap in gaps:
        stamp += gap
        times.append(clock.time_of("video", stamp, 0.0))
    assert [after - before for before, after in itertools.pairwise(times)] == gaps


def test_a_leap_of_both_tracks_keeps_them_together() -> None:
    clock = LiveClock(0.0, 0.0)
    for place in range(5):
        assert clock.time_of("video", 1000.0 + 100 * place, 100.0 * place) == 100 * place
        assert clock.time_of("sound", 1020.0 + 100 * place, 100.0 * place) == 100 * place + 20
    # The camera is set to another time.
    assert clock.time_of("video", 9e8, 500.0) == 500
    assert clock.time_of("sound", 9e8 + 20, 510.0) == 520


def test_without_stamps_arrival_counts_and_a_missing_one_is_an_interval() -> None:
    clock = LiveClock(100.0, 1000.0, 40.0)
    assert [clock.time_of("video", None, at) for at in (1000.0, 1300.0)] == [100, 400]
    clock = LiveClock(0.0, 0.0, 40.0)
    assert clock.time_of("video", 7.0, 0.0) == 0
    assert clock.time_of("video", None, 0.0) == 40


@given(st.lists(st.binary(min_size=4, max_size=4), unique=True, min_size=4, max_size=40), st.data())
def test_what_is_sent_again_is_told_apart_from_what_is_new(packets: list[bytes], data: st.DataObject) -> None:
    """A connection that begins anywhere in the one before repeats it up to its end."""
    cut = data.draw(st.integers(1, len(packets) - 1))
    again = data.draw(st.integers(0, cut - 1))
    repeats = Repeats()
    repeats.connected()
    assert not any(repeats.repeats(packet) for packet in packets[:cut])
    repeats.connected()
    told = [repeats.repeats(packet) for packet in packets[again:]]
    assert told == [True] * (cut - again) + [False] * (len(packets) - cut)
    repeats.connected()
    assert not repeats.repeats(b"a new picture")
