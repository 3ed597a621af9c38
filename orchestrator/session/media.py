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

MAX_AHEAD_MS = 30 * 60_000
"""How far a frame may be ahead of the session's media clock: less than clocks are wrong by that are set to
another time zone, more than anybody leaves out who shows a file faster than it plays."""
_AFTER_RESTART_MS = 1000
_LOOSE_MS = 2.0

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
    """Capture times of frames on the session's media clock, in ms; its first input is 0.

    A frame's own time counts, else the end of the audio it rides, else when it arrived; audio that has not
    gone on since the last append carries no frame. Whoever changes from one to another, at whichever door,
    goes on where the newest frame was, by the time that has passed.

    A frame far ahead of that is refused: it would be the newest from then on, and all that is shown
    afterwards older than what the model has seen.

    :param began_ms: monotonic time at which the session opened
    :param newest_ms: capture time of its newest frame so far, of one that goes on after a restart; how long
        it was away is not known, so the first frame is taken at its word
    """

    def __init__(self, began_ms: float = 0.0, newest_ms: int | None = None) -> None:
        self._began_ms = began_ms
        self._newest_ms = newest_ms
        self._anchor: tuple[float, float] | None = None  # a media time, and when it arrived
        self._audio_origin_ms: float | None = None
        self._audio_end_ms = 0.0

    def now_ms(self, arrived_ms: float) -> float:
        """Where the clock is; frames of that time are not older than any other."""
        if self._anchor is None:
            return 0.0 if self._newest_ms is None else self._newest_ms + _AFTER_RESTART_MS
        media_ms, at_ms = self._anchor
        return max(media_ms + arrived_ms - at_ms, self._newest_ms or 0)

    @property
    def begun(self) -> bool:
        """A frame was seen."""
        return self._newest_ms is not None

    def check(self, times: Sequence[int], arrived_ms: float, param: str) -> None:
        """Raise ``frame_time_ahead`` for times that would leave all later frames behind."""
        if self._anchor is None and self._newest_ms is not None:
            return
        now_ms = self.now_ms(arrived_ms) if self._anchor is not None else arrived_ms - self._began_ms
        if max(times, default=0) > now_ms + MAX_AHEAD_MS:
            raise InvalidRequest(
                f"a frame of {max(times) / 1000:.1f} s is more than {MAX_AHEAD_MS // 60_000} minutes ahead "
                f"of the session's media clock, which is at {now_ms / 1000:.1f} s; its first frame is 0.",
                code="frame_time_ahead",
                param=param,
            )

    def times(
        self, count: int, given: Sequence[float] | None, audio_end_ms: float | None, arrived_ms: float
    ) -> list[int]:
        """Times of the ``count`` frames of one append; ``given`` are checked ones. Raises
        ``frame_time_ahead``; changes nothing."""
        if given is not None:
            times = [round(time) for time in given]
        else:
            times = [round(self._dated(audio_end_ms, arrived_ms))] * count
        self.check(times, arrived_ms, "audio_end_ms" if given is None else "frame_times_ms")
        return times

    def heard(self, audio_end_ms: float | None, arrived_ms: float) -> None:
        """An append was taken, with pictures or without; its audio ends there."""
        dated_ms = self._dated(audio_end_ms, arrived_ms)
        if audio_end_ms is not None and audio_end_ms > self._audio_end_ms:
            self._audio_origin_ms, self._audio_end_ms = audio_end_ms - dated_ms, audio_end_ms
        if self._anchor is None and self._newest_ms is None:
            self._anchor = 0.0, arrived_ms

    def seen(self, times: Sequence[int], arrived_ms: float) -> None:
        """Frames of these times were taken, by whichever door."""
        if not times:
            return
        top, newest_ms = max(times), self._newest_ms
        if newest_ms is not None and top < newest_ms:
            return
        # What was dated by this clock leaves it as it is: rounded a thousand times it would go wrong.
        if self._anchor is None or abs(top - self.now_ms(arrived_ms)) > _LOOSE_MS:
            self._anchor = top, arrived_ms
        self._newest_ms = top

    def _dated(self, audio_end_ms: float | None, arrived_ms: float) -> float:
        """By its audio, where that goes on and does not lead back."""
        now_ms = self.now_ms(arrived_ms)
        if audio_end_ms is None or audio_end_ms <= self._audio_end_ms or self._audio_origin_ms is None:
            return now_ms
        time_ms = audio_end_ms - self._audio_origin_ms
        return time_ms if time_ms >= (self._newest_ms or 0) else now_ms
