"""What media sources deliver, how they are told to, and how they fail."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridges.frames import FrameBounds

_USER = re.compile(r"//[^/\s]*@")
_QUERY = re.compile(r"(://[^\s?]*\?)[^\s'\"]+")


def shown(text: str) -> str:
    """A path, a URL or a text with URLs as people may see it: without user name, password and query, in which
    cameras take passwords too."""
    return _QUERY.sub(r"\1...", _USER.sub("//", text))


class MediaError(Exception):
    """A source that delivers nothing. The message says what to change.

    :param code: ``not_found``; ``no_video``: no picture in it; ``unreadable``: nothing in it decodes;
        ``unsupported``: a protocol or codec this build lacks; ``unreachable``: a stream without connection;
        ``login_refused``: user name or password are missing or wrong
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class MediaOptions:
    """How a source is sampled.

    Samples lie on a grid of ``period_ms / frames_per_tick``; a sample is the first picture at or after its
    place on the grid, and a picture is never delivered twice.

    :param bounds: of the encoded pictures
    :param loop: times a file or folder is played
    :param max_duration_ms: media time after which the source ends
    :param sound_rate_hz: rate of the sound that is wanted; ``None``: pictures only
    :param turn_s: of a live stream, a moment at which a sample is wanted, in monotonic seconds; the grid is
        laid through it. By default it begins with the first picture, which is a sample in any case
    """

    bounds: FrameBounds
    period_ms: int = 1000
    frames_per_tick: int = 1
    loop: int = 1
    max_duration_ms: int | None = None
    sound_rate_hz: int | None = None
    turn_s: float | None = None

    def __post_init__(self) -> None:
        if self.period_ms < 1 or self.frames_per_tick < 1 or self.loop < 1:
            raise ValueError("period_ms, frames_per_tick and loop must be at least 1")


@dataclass(frozen=True, slots=True)
class MediaFrame:
    """One sampled picture: JPEG (or a file's own bytes), size in pixels, and its true time; 0 is the
    first picture, or the first sound of a live stream that is heard before it is seen.

    :param name: file or stream that it comes from
    """

    media_time_ms: int
    data: bytes
    width: int
    height: int
    name: str


@dataclass(frozen=True, slots=True)
class MediaSound:
    """A piece of a source's sound, on the clock of its pictures.

    :param media_time_ms: when its first sample was recorded
    :param pcm: float32 little-endian mono samples at ``rate`` Hz
    """

    media_time_ms: int
    pcm: bytes
    rate: int

    @property
    def samples(self) -> int:
        return len(self.pcm) // 4


MediaPiece = MediaFrame | MediaSound


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """What is known before playing.

    :param kind: ``video``, ``images`` or ``live``
    :param duration_ms: of all that will be played, ``None`` when unknown
    """

    kind: str
    name: str
    duration_ms: int | None = None


@dataclass(slots=True)
class MediaStatistics:
    """Counters of one playing.

    :param decoded: pictures decoded; ``delivered``: of them sampled
    :param corrupt: packets or pictures that were damaged
    :param skipped: files of a folder that could not be used
    :param dropped: live samples replaced by newer ones before anyone took them
    :param repeated: pictures that a stream sent again after a break, left out
    :param connected: a live stream is being received; ``attempts``: tries since it last was
    :param reconnects: connections made after the first; ``lost``: a live stream did not come back
    :param sound: ``off``: not wanted; ``none``: there is no track; ``unsupported``; ``playing``
    :param sound_dropped: pieces of sound that nobody took in time
    :param warnings: what a person should know, one line each, the first few
    """

    decoded: int = 0
    delivered: int = 0
    corrupt: int = 0
    skipped: int = 0
    dropped: int = 0
    repeated: int = 0
    connected: bool = False
    attempts: int = 0
    reconnects: int = 0
    lost: bool = False
    sound: str = "off"
    sound_dropped: int = 0
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        if len(self.warnings) < 20:
            self.warnings.append(text)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Reader(Protocol):
    """A blocking source; runs in one thread."""

    info: MediaInfo

    def pieces(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaPiece]:
        """Samples in time order, and the sound between them, until the end or until ``stop`` is set.

        :raises MediaError: nothing was delivered
        """


class Sampler:
    """Decides which pictures are samples; times are whole milliseconds and never fall."""

    def __init__(self, period_ms: int, frames_per_tick: int) -> None:
        self._period = period_ms
        self._per_tick = frames_per_tick
        self._offset_ms = 0
        self._first = True
        self._next = 0

    def shift(self, offset_ms: int) -> None:
        """The grid begins so much later; the first picture of all is a sample wherever it lies."""
        self._offset_ms = offset_ms

    def wants(self, time_ms: int) -> bool:
        """True for the first picture at or after the next place on the grid; skips places without one."""
        first, self._first = self._first, False
        place = (time_ms - self._offset_ms) * self._per_tick
        if first and place < 0:
            return True
        if place < self._next * self._period:
            return False
        self._next = place // self._period + 1
        return True
