"""Times of a live stream's tracks on one clock, and what a stream sends twice. Told when things came."""

from __future__ import annotations

from collections import deque

_JUMP_MS = 10_000
_BACK_MS = 500
_SAME_MS = 1_000
_TOGETHER_MS = 1_000
_REMEMBERED = 512


class LiveClock:
    """Capture times in ms for one connection: the stream's own time stamps, moved to where the clock stands.

    Stamps that leap (by more than 10 s against the time that passed, or back by more than half a second)
    begin anew where the clock stands; smaller steps back are held. In a stream without stamps arrival counts;
    where single ones are missing, ``interval_ms`` does.

    :param start_ms: time of what comes first; ``arrived_ms``: when it came, on any monotonic clock
    """

    def __init__(self, start_ms: float, arrived_ms: float, interval_ms: float = 40.0) -> None:
        self._interval_ms = interval_ms
        self._start = (start_ms, arrived_ms)
        self._offsets: dict[str, float] = {}
        self._last: dict[str, tuple[float, float]] = {}

    def time_of(self, track: str, stamp_ms: float | None, arrived_ms: float) -> int:
        """Never falls within a track. ``stamp_ms``: by the stream, ``None`` if it has none."""
        last_ms, last_arrived = self._last.get(track, self._start)
        expected = last_ms + max(0.0, arrived_ms - last_arrived)
        if stamp_ms is not None:
            offset = self._offset(track, stamp_ms, expected, last_ms)
            self._offsets[track] = offset
            time_ms = stamp_ms + offset
        elif self._offsets:
            time_ms = last_ms + self._interval_ms
        else:
            time_ms = expected
        time_ms = max(time_ms, last_ms)
        self._last[track] = (time_ms, arrived_ms)
        return round(time_ms)

    def _offset(self, track: str, stamp_ms: float, expected: float, last_ms: float) -> float:
        """What is added to the stamp. Tracks share it as long as their stamps are of one clock."""
        own = self._offsets.get(track)
        for offset in (own, *self._offsets.values()):
            if offset is None:
                continue
            off = stamp_ms + offset - expected
            if offset == own or own is None:
                # The other track may have begun earlier, or come later.
                back = own is not None and stamp_ms + offset < last_ms - _BACK_MS
                if abs(off) <= _JUMP_MS and not back:
                    return offset
            elif abs(off) <= _TOGETHER_MS:
                return offset
        return expected - stamp_ms


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
