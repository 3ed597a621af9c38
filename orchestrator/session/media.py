"""Media as clients send it, checked and decoded: frames of an append, and whether its audio holds speech."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.wire.audio import Samples
from orchestrator.wire.client import InputAppend
from orchestrator.wire.errors import InvalidRequest

MAX_FRAME_CHARS = 4_000_000
"""Base64 characters of one frame."""

SPEECH_PROBABILITY = 0.5
_SIGNATURES = (b"\xff\xd8", b"\x89PNG\r\n\x1a\n")


def frame_payloads(append: InputAppend, most: int) -> list[bytes]:
    """The encoded pictures of an append; ``null`` entries are skipped.

    Checked in this order: slicing, the list, the count, each entry. Raises ``invalid_video_frames``.
    """
    slices = append.max_slice_nums
    if slices is not None and (isinstance(slices, bool) or slices != 1):
        raise _bad_frames("max_slice_nums is 1 or absent", "max_slice_nums")
    given = append.video_frames
    if given is not None and not isinstance(given, list):
        raise _bad_frames("they are a list")
    frames = [frame for frame in given or [] if frame is not None]
    if len(frames) > most:
        raise _bad_frames(f"at most {most} frames ride one append; send several appends")
    return [picture(frame, f"video_frames[{index}]") for index, frame in enumerate(frames)]


def picture(value: Any, param: str) -> bytes:
    """One JPEG or PNG from bare base64 or from a data URL."""
    if not isinstance(value, str) or not value:
        raise _bad_frames("a frame is a base64 string", param)
    if value.startswith("data:"):
        _, _, value = value.partition(",")
    if len(value) > MAX_FRAME_CHARS:
        raise _bad_frames(f"a frame has at most {MAX_FRAME_CHARS} base64 characters", param)
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad_frames("a frame is valid base64", param) from error
    if not data.startswith(_SIGNATURES):
        raise _bad_frames("a frame is a JPEG or a PNG", param)
    return data


def _bad_frames(rule: str, param: str = "video_frames") -> InvalidRequest:
    return InvalidRequest(f"video_frames: {rule}.", code="invalid_video_frames", param=param)


def holds_speech(append: InputAppend, samples: Samples, silence_rms: float) -> bool:
    """The client's hints in their order of precedence, else the loudness of the audio.

    :param silence_rms: the session's floor; the append may bring its own
    """
    if append.is_speech is not None:
        return append.is_speech
    if append.speech is not None:
        return append.speech
    vad = append.vad
    if vad is not None:
        if vad.is_speech is not None:
            return vad.is_speech
        probability = vad.speech_probability if vad.speech_probability is not None else vad.probability
        if probability is not None:
            return probability >= SPEECH_PROBABILITY
    if append.speech_probability is not None:
        return append.speech_probability >= SPEECH_PROBABILITY
    floor = silence_rms
    if vad is not None and vad.silence_rms is not None:
        floor = vad.silence_rms
    if append.overlap_silence_rms is not None:
        floor = append.overlap_silence_rms
    return rms(samples) >= floor if samples.size else False


def rms(samples: Samples) -> float:
    return math.sqrt(float(np.mean(np.square(samples, dtype=np.float64))))


def check_times(count: int, given: Sequence[float] | None) -> None:
    """Raise ``bad_event`` when the client's times are not those of its frames."""
    if given is not None and (len(given) != count or any(time < 0 for time in given)):
        raise InvalidRequest(
            f"frame_times_ms has one time from 0 on for each of the {count} frames.",
            code="bad_event",
            param="frame_times_ms",
        )


class MediaClock:
    """Capture times of frames on the session's media clock, in ms; the first frame is 0.

    A frame's own time counts, else the end of the audio it rides, else when it arrived; audio that has not
    gone on since the last append carries no frame. A client that changes from one to another goes on where
    it was, by the time that has passed.
    """

    def __init__(self) -> None:
        self._first_arrival_ms: float | None = None
        self._audio_origin_ms: float | None = None
        self._audio_end_ms = 0.0

    def times(
        self, count: int, given: Sequence[float] | None, audio_end_ms: float | None, arrived_ms: float
    ) -> list[int]:
        """Times of the ``count`` frames of one append; ``given`` are checked ones."""
        if self._first_arrival_ms is None:
            self._first_arrival_ms = arrived_ms
        passed = arrived_ms - self._first_arrival_ms
        goes_on = audio_end_ms is not None and audio_end_ms > self._audio_end_ms
        self._audio_end_ms = max(self._audio_end_ms, audio_end_ms or 0.0)
        if given is not None:
            return [round(time) for time in given]
        if audio_end_ms is None or not goes_on:
            return [round(passed)] * count
        if self._audio_origin_ms is None:
            self._audio_origin_ms = audio_end_ms - passed
        return [max(0, round(audio_end_ms - self._audio_origin_ms))] * count
