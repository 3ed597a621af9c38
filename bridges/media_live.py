"""Live streams: reconnected when they break, with times that go on across the gap."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from bridges.media_types import (
    MediaError,
    MediaFrame,
    MediaInfo,
    MediaOptions,
    MediaStatistics,
    Sampler,
    shown,
)
from bridges.media_video import PictureClock, decode, encode, open_video

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 5.0


class LiveReader:
    """Samples a live stream until it is stopped, or until it has been silent for ``give_up_s``.

    :param url: anything FFmpeg opens: RTSP, HTTP, RTMP, SRT, UDP
    :param give_up_s: seconds without a picture after which the source ends; the first connection has one try
    :param wait: sleeps so many seconds, or less when ``stop`` is set; ``now``: monotonic seconds
    """

    def __init__(
        self,
        url: str,
        options: MediaOptions,
        *,
        give_up_s: float = 60.0,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._name = shown(url)
        self._options = options
        self._give_up_s = give_up_s
        self._wait = wait
        self._now = now
        self.info = MediaInfo("live", self._name)

    def frames(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaFrame]:
        sampler = Sampler(self._options.period_ms, self._options.frames_per_tick)
        limit = self._options.max_duration_ms
        start_ms = last_ms = 0
        last_at: float | None = None
        delay = _FIRST_WAIT_S
        while not stop.is_set():
            try:
                container, stream = open_video(self._url)
            except MediaError:
                if last_at is None:
                    raise
            else:
                statistics.reconnects += last_at is not None
                with container:
                    clock = PictureClock(stream)
                    if last_at is not None:
                        # Media time runs on while nothing is received.
                        start_ms = last_ms + max(1, round((self._now() - last_at) * 1000))
                    for frame in decode(container, stream, stop, statistics):
                        last_ms, last_at = start_ms + clock.time_of(frame), self._now()
                        delay = _FIRST_WAIT_S
                        if limit is not None and last_ms >= limit:
                            return
                        if sampler.wants(last_ms):
                            statistics.delivered += 1
                            yield MediaFrame(
                                last_ms, *encode(frame, stream, self._options.bounds), self._name
                            )
                if last_at is None:
                    raise MediaError("unreadable", f"nothing from {self._name} decodes")
            if stop.is_set():
                return
            if self._now() - last_at > self._give_up_s:
                statistics.warn(f"{self._name} sent nothing for {self._give_up_s:g} s")
                return
            self._wait(stop, delay)
            delay = min(_LONGEST_WAIT_S, delay * 2)
