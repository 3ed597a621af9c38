"""Frames and speech hints of an append, and the media clock."""

import base64
from typing import Any

import numpy as np
import pytest

from orchestrator.session.media import MAX_FRAME_CHARS, MediaClock, check_times, frame_payloads, holds_speech
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


def test_frames_are_dated_by_their_own_times_first() -> None:
    clock = MediaClock()
    assert clock.times(2, [0.0, 500.4], 1000.0, 77.0) == [0, 500]


def test_without_times_the_audio_dates_them_from_the_first_frame_on() -> None:
    clock = MediaClock()
    assert clock.times(1, None, 1000.0, 5000.0) == [0]
    assert clock.times(1, None, 2000.0, 6100.0) == [1000]


def test_without_either_arrival_dates_them() -> None:
    clock = MediaClock()
    assert clock.times(1, None, None, 5000.0) == [0]
    assert clock.times(2, None, None, 5750.0) == [750, 750]


def test_a_change_of_clock_goes_on_where_it_was() -> None:
    clock = MediaClock()
    clock.times(1, None, None, 5000.0)
    assert clock.times(1, None, 90_000.0, 6000.0) == [1000]
    assert clock.times(1, None, 91_000.0, 7500.0) == [2000]


@pytest.mark.parametrize("given", [[0.0], [0.0, -1.0], [0.0, 1.0, 2.0]])
def test_times_must_match_the_frames(given: list[float]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_times(2, given)
    assert refused.value.code == "bad_event"
