"""Times of a live stream's tracks on one clock, and what a stream sends twice. Told when things came."""

from __future__ import annotations

from collections import deque
from typing import Any

_JUMP_MS = 10_000
_BACK_MS = 500
_SAME_MS = 1_000
_REMEMBERED = 512


class LiveClock:
    """Capture times in ms for one connection: the stream's own time stamps, moved to where the clock stands.

    Stamps that leap (by more than 10 s against the time that passed, or back by more than half a second)
    begin anew where the clock stands; smaller steps back are held. In a stream without stamps arrival counts;
    where single ones are missing, ``interval_ms`` does.

    :param start_ms: time of the first picture; ``arrived_ms``: when it came, on any monotonic clock
    """

    def __init__(self, start_ms: float, arrived_ms: float, interval_ms: float = 40.0) -> None:
        self._interval_ms = interval_ms
        self._start = (start_ms, arrived_ms)
        self._offset: float | None = None
        self._last: dict[Any, tuple[float, float]] = {}

    def time_of(self, track: Any, stamp_ms: float | None, arrived_ms: float) -> int:
        """Never falls within a track. ``stamp_ms``: by the stream, ``None`` if it has none."""
        last_ms, last_arrived = self._last.get(track, self._start)
        expected = last_ms + max(0.0, arrived_ms - last_arrived)
        if stamp_ms is None:
            time_ms = expected if self._offset is None else last_ms + self._interval_ms
        else:
            if self._offset is None:
                self._offset = expected - stamp_ms
            time_ms = stamp_ms + self._offset
            known = track in self._last
            if known and (abs(time_ms - expected) > _JUMP_MS or time_ms < last_ms - _BACK_MS):
                self._offset = expected - stamp_ms
                time_ms = expected
        time_ms = max(time_ms, last_ms)
        self._last[track] = (time_ms, arrived_ms)
        return round(time_ms)


class Repeats:
    """Tells what a stream sent before it broke from what is new.

    Servers that keep the last seconds for newcomers send them again. A connection that begins with a packet
    of the one before repeats it as long as packet follows packet as it did there.
    """

    def __init__(self) -> None:
        self._sent: deque[int] = deque(maxlen=_REMEMBERED)
        self._before: list[int] = []
        self._place: int | None = None
        self._begun = True

    def connected(self) -> None:
        self._before = list(self._sent)
        self._place = None
        self._begun = False

    def repeats(self, packet: bytes) -> bool:
        """Told of each packet in order."""
        mark = hash(packet)
        if not self._begun:
            self._begun = True
            self._place = self._before.index(mark) if mark in self._before else None
        elif self._place is not None:
            onward = self._place + 1
            follows = onward < len(self._before) and self._before[onward] == mark
            self._place = onward if follows else None
        if self._place is not None:
            return True
        self._sent.append(mark)
        return False
