"""Frames and speech hints of an append, and the media clock."""

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.media import (
    MAX_AHEAD_MS,
    MAX_FRAME_CHARS,
    MediaClock,
    check_times,
    frame_payloads,
    holds_speech,
)
from orchestrator.wire.client import InputAppend, VoiceHint
from orchestrator.wire.errors import InvalidRequest

JPEG = b"\xff\xd8\xff\xe0rest"
PNG = b"\x89PNG\r\n\x1a\nrest"
LOUD = np.full(160, 0.5, np.float32)
QUIET = np.zeros(160, np.float32)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def append(**fields: Any) -> InputAppend:
    return InputAppend(type="input_audio_buffer.append", **fields)


def test_pictures_are_decoded_and_null_entries_skipped() -> None:
    frames = [b64(JPEG), None, "data:image/png;base64," + b64(PNG)]
    assert frame_payloads(append(video_frames=frames), 2) == [JPEG, PNG]
    assert frame_payloads(append(), 2) == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"video_frames": ["x"] * 3, "max_slice_nums": 2}, "max_slice_nums"),
        ({"video_frames": [b64(JPEG)] * 3}, "video_frames"),
        ({"video_frames": [b64(JPEG), 7]}, "video_frames[1]"),
        ({"video_frames": [""]}, "video_frames[0]"),
        ({"video_frames": ["!!!!"]}, "video_frames[0]"),
        ({"video_frames": [b64(b"GIF89a")]}, "video_frames[0]"),
        ({"video_frames": ["A" * (MAX_FRAME_CHARS + 4)]}, "video_frames[0]"),
    ],
)
def test_refused_frames(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        frame_payloads(append(**fields), 2)
    assert (refused.value.code, refused.value.param) == ("invalid_video_frames", param)


@pytest.mark.parametrize(
    ("fields", "samples", "expected"),
    [
        ({"is_speech": False, "speech": True}, LOUD, False),
        ({"speech": True, "vad": VoiceHint(is_speech=False)}, QUIET, True),
        ({"vad": VoiceHint(is_speech=True, speech_probability=0.1)}, QUIET, True),
        ({"vad": VoiceHint(speech_probability=0.5), "speech_probability": 0.1}, QUIET, True),
        ({"vad": VoiceHint(probability=0.4), "speech_probability": 0.9}, QUIET, False),
        ({"speech_probability": 0.49}, LOUD, False),
        ({}, LOUD, True),
        ({}, QUIET, False),
        ({"overlap_silence_rms": 0.6}, LOUD, False),
        ({"vad": VoiceHint(silence_rms=0.6)}, LOUD, False),
        ({}, LOUD[:0], False),
    ],
)
def test_hints_count_in_their_order_then_loudness(
    fields: dict[str, Any], samples: Any, expected: bool
) -> None:
    assert holds_speech(append(**fields), samples, 0.003) is expected


def dated(
    clock: MediaClock, arrived_ms: float, given: list[float] | None = None, audio_end_ms: float | None = None
) -> int:
    """The time of a frame that is taken."""
    (time,) = times = clock.times(1, given, audio_end_ms, arrived_ms)
    clock.heard(audio_end_ms, arrived_ms)
    clock.seen(times, arrived_ms)
    return time


def test_frames_are_dated_by_their_own_times_first() -> None:
    clock = MediaClock()
    assert clock.times(2, [0.0, 500.4], 1000.0, 77.0) == [0, 500]


def test_without_times_the_audio_dates_them_from_the_first_frame_on() -> None:
    clock = MediaClock()
    assert dated(clock, 5000.0, audio_end_ms=1000.0) == 0
    assert dated(clock, 6100.0, audio_end_ms=2000.0) == 1000


def test_without_either_arrival_dates_them() -> None:
    clock = MediaClock()
    assert dated(clock, 5000.0) == 0
    assert clock.times(2, None, None, 5750.0) == [750, 750]


def test_a_change_of_clock_goes_on_where_it_was() -> None:
    clock = MediaClock()
    dated(clock, 5000.0)
    assert dated(clock, 6000.0, audio_end_ms=90_000.0) == 1000
    assert dated(clock, 7500.0, audio_end_ms=91_000.0) == 2000


def test_a_file_that_is_shown_faster_than_it_plays_leaves_no_later_frame_behind() -> None:
    clock = MediaClock()
    for second in range(60):
        dated(clock, 5000.0 + second, [1000.0 * second])
    assert dated(clock, 6059.0) == 60_000
    assert dated(clock, 7059.0, audio_end_ms=200.0) == 61_000
    assert dated(clock, 8059.0, audio_end_ms=1200.0) == 62_000


def test_frames_of_other_doors_move_the_clock_on() -> None:
    clock = MediaClock()
    dated(clock, 0.0)
    clock.seen([30_000], 1000.0)
    clock.seen([2_000], 1500.0)  # a late one
    assert dated(clock, 2000.0) == 31_000


def test_after_a_restart_frames_go_on_behind_the_newest() -> None:
    clock = MediaClock(100.0, newest_ms=7_200_000)
    clock.check([50_000_000], 100.0, "")  # nobody knows how long it was away
    assert dated(clock, 500.0) == 7_201_000
    assert dated(clock, 1500.0) == 7_202_000


@pytest.mark.parametrize("by", [{"given": [2e9]}, {"audio_end_ms": 2e9}])
def test_a_frame_far_ahead_is_refused_and_leaves_no_trace(by: dict[str, Any]) -> None:
    clock = MediaClock()
    dated(clock, 0.0, audio_end_ms=0.5)
    with pytest.raises(InvalidRequest) as refused:
        dated(clock, 1000.0, **by)
    assert (refused.value.code, refused.value.param) == (
        "frame_time_ahead",
        "frame_times_ms" if "given" in by else "audio_end_ms",
    )
    assert dated(clock, 2000.0, [2000.0]) == 2000
    assert dated(clock, 3000.0, audio_end_ms=1000.5) == 3000


def test_the_first_frame_is_near_the_sessions_beginning() -> None:
    clock = MediaClock(began_ms=1000.0)
    with pytest.raises(InvalidRequest):
        clock.times(1, [MAX_AHEAD_MS + 1.0], None, 1000.0)
    # A client's clock may run since the session opened.
    assert clock.times(1, [MAX_AHEAD_MS + 5000.0], None, 6000.0) == [MAX_AHEAD_MS + 5000]


@given(st.lists(st.tuples(st.integers(0, 5000), st.none() | st.integers(0, 10_000_000)), max_size=40))
def test_a_frame_without_a_time_is_never_late(steps: list[tuple[int, int | None]]) -> None:
    """Whatever times come with other frames."""
    clock, now, newest = MediaClock(), 0, 0
    for passed, time in steps:
        now += passed
        try:
            at = dated(clock, float(now), None if time is None else [float(time)])
        except InvalidRequest:
            assert time is not None and time > newest + MAX_AHEAD_MS
            continue
        assert time is not None or at >= newest
        newest = max(newest, at)


@pytest.mark.parametrize("times", [[0.0], [0.0, -1.0], [0.0, 1.0, 2.0]])
def test_times_must_match_the_frames(times: list[float]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_times(2, times)
    assert refused.value.code == "bad_event"
