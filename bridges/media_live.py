"""Live streams: reconnected when they break, with times that go on across the gap."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from av.audio.frame import AudioFrame
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bridges.media_clock import LiveClock, Repeats
from bridges.media_types import (
    MediaError,
    MediaFrame,
    MediaInfo,
    MediaOptions,
    MediaPiece,
    MediaStatistics,
    Sampler,
    shown,
)
from bridges.media_video import (
    Opened,
    PictureClock,
    SoundTrack,
    decode,
    encode,
    open_video,
    sound_at,
)

ATTEMPTS = 20
"""Tries to connect again before a stream counts as lost."""
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 5.0
_UNSTAMPED = 5
"""Pictures at the start of a connection that may come without a time stamp while later ones have it."""


class LiveReader:
    """Samples a live stream until it is stopped, or until it is lost (``MediaStatistics.lost``).

    :param url: anything FFmpeg opens: RTSP, HTTP, RTMP, SRT, UDP
    :param give_up_s: seconds without a picture after which the stream is lost and the source ends; so it is
        after ``ATTEMPTS`` tries; the first connection has one
    :param open_: opens it, once for each connection; raises ``MediaError``
    :param jitter: from 0 to 1; a wait is half its length and that part of the other half
    :param wait: sleeps so many seconds, or less when ``stop`` is set; ``now``: monotonic seconds
    """

    def __init__(
        self,
        url: str,
        options: MediaOptions,
        *,
        give_up_s: float = 60.0,
        open_: Callable[[str], Opened] = open_video,
        jitter: Callable[[], float] = random.random,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._name = shown(url)
        self._options = options
        self._give_up_s = give_up_s
        self._open = open_
        self._jitter = jitter
        self._wait = wait
        self._now = now
        self._sampler = Sampler(options.period_ms, options.frames_per_tick)
        self._repeats = Repeats()
        self._last_ms = 0
        self._last_at: float | None = None
        self._full = False
        self.info = MediaInfo("live", self._name)

    def pieces(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaPiece]:
        delay = _FIRST_WAIT_S
        while not stop.is_set():
            statistics.attempts += 1
            before = statistics.decoded
            try:
                opened = self._open(self._url)
            except MediaError as failed:
                if self._last_at is None:
                    raise
                statistics.warn(failed.message)
            else:
                try:
                    with opened:
                        yield from self._connection(opened.container, opened.stream, stop, statistics)
                finally:
                    statistics.connected = False
                if self._full:
                    return
                if self._last_at is None and not stop.is_set():
                    raise MediaError("unreadable", f"nothing from {self._name} decodes")
            if stop.is_set() or self._last_at is None:
                return
            if statistics.decoded > before:
                delay, statistics.attempts = _FIRST_WAIT_S, 0
            silent_s = self._now() - self._last_at
            if silent_s > self._give_up_s or statistics.attempts >= ATTEMPTS:
                lost = f"{self._name} sent nothing for {silent_s:.0f} s ({statistics.attempts} attempts)"
                statistics.warn(lost)
                statistics.lost = True
                return
            self._wait(stop, delay * (0.5 + 0.5 * self._jitter()))
            delay = min(_LONGEST_WAIT_S, delay * 2)

    def _connection(
        self,
        container: InputContainer,
        stream: VideoStream,
        stop: threading.Event,
        statistics: MediaStatistics,
    ) -> Iterator[MediaPiece]:
        clock: LiveClock | None = None
        sound = SoundTrack.of(container, self._options, statistics)
        unstamped = 0
        old: set[int] = set()
        # Sound that comes back before any picture may be what was heard before the break.
        repeating = self._last_at is not None
        self._repeats.connected()

        def received(packet: Packet[Any]) -> None:
            nonlocal repeating
            repeating = packet.size > 0 and self._repeats.repeats(bytes(packet))
            if repeating and packet.pts is not None:
                old.add(packet.pts)

        for frame in decode(container, stream, stop, statistics, sound, received):
            now = self._now()
            if not statistics.connected:
                statistics.connected = True
                statistics.reconnects += self._last_at is not None
            if isinstance(frame, AudioFrame):
                if not repeating:
                    # A connection begins anywhere between two whole pictures: it is heard until it is seen.
                    clock = clock or self._clock(stream, now)
                    yield sound_at(clock.time_of("sound", _stamp_ms(frame), now * 1000), frame)
                continue
            if frame.pts in old or (frame.pts is None and repeating):
                statistics.repeated += 1
                continue
            if frame.pts is None and unstamped < _UNSTAMPED:
                unstamped += 1
                continue
            clock = clock or self._clock(stream, now)
            self._last_ms = clock.time_of("video", _stamp_ms(frame), now * 1000)
            if self._last_at is None:
                self._sampler.shift(self._last_ms + self._away_ms(now))
            self._last_at = now
            statistics.attempts = 0
            limit = self._options.max_duration_ms
            if limit is not None and self._last_ms >= limit:
                self._full = True
                return
            if self._sampler.wants(self._last_ms):
                statistics.delivered += 1
                yield MediaFrame(self._last_ms, *encode(frame, stream, self._options.bounds), self._name)

    def _clock(self, stream: VideoStream, now: float) -> LiveClock:
        """Of a connection whose first piece came just now. Media time runs on while nothing is received."""
        start_ms = 0.0
        if self._last_at is not None:
            start_ms = self._last_ms + max(1.0, (now - self._last_at) * 1000)
        return LiveClock(start_ms, now * 1000, PictureClock(stream).interval_ms)

    def _away_ms(self, now: float) -> int:
        """From the first picture to where the grid begins: half a period at least, for that picture is a
        sample too."""
        if self._options.turn_s is None:
            return 0
        period_s = self._options.period_ms / 1000
        return round(((self._options.turn_s - now - period_s / 2) % period_s + period_s / 2) * 1000)


def _stamp_ms(frame: VideoFrame | AudioFrame) -> float | None:
    if frame.pts is None or frame.time_base is None:
        return None
    return float(frame.pts * frame.time_base * 1000)
