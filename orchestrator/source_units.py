"""A source's pictures and sound as input units: in order, and a picture with the sound of its own time."""

from __future__ import annotations

from dataclasses import dataclass

from bridges.media_types import MediaFrame, MediaPiece, MediaSound
from orchestrator.session.units import FrameInput, InputUnit

BLOCK_MS = 200
"""Sound of one unit."""
_LOOSE_MS = 40
"""Time stamps of sound that runs on without a gap differ from its length by less."""
_FILLED_MS = 1000
"""Longer gaps are no silence: the sound begins anew behind them."""
_WAITS_MS = 1000
_BYTES = 4
MAX_FRAMES = 2


@dataclass(frozen=True, slots=True)
class TimedUnit:
    """:param start_ms: when its sound begins, on the session's media clock; ``duration_ms``: of it"""

    unit: InputUnit
    start_ms: int
    duration_ms: float = 0.0


class Units:
    """One source's pieces in, units out; every method returns what is ready, in order.

    :param origin_ms: the source's beginning on the session's media clock
    :param silence_hz: rate of the silence that a picture without sound is given; ``None``: it goes alone
    """

    def __init__(self, origin_ms: int, silence_hz: int | None = None) -> None:
        self._origin_ms = origin_ms
        self._silence_hz = silence_hz
        self._silent_ms: float | None = None  # where the last silence of that kind ended
        self._frames: list[FrameInput] = []
        self._pcm = bytearray()
        self._start_ms = 0.0
        self._rate = 0
        self.dropped = 0
        """Pictures that newer ones replaced while they waited for their sound."""

    @property
    def _end_ms(self) -> float:
        return self._start_ms + len(self._pcm) / _BYTES * 1000 / self._rate

    def add(self, piece: MediaPiece) -> list[TimedUnit]:
        if isinstance(piece, MediaSound):
            return self._add_sound(piece)
        return self._add_frame(piece)

    def finish(self) -> list[TimedUnit]:
        """What still waits, at the end of the source."""
        return self._flushed()

    def _add_frame(self, piece: MediaFrame) -> list[TimedUnit]:
        frame = FrameInput(piece.data, self._origin_ms + piece.media_time_ms)
        if not self._rate:
            return [self._without_sound(frame)]
        if frame.media_time_ms > self._end_ms + _WAITS_MS:
            # The sound has stopped coming: pictures wait for it no longer.
            return [*self._flushed(), self._without_sound(frame)]
        self._frames.append(frame)
        if len(self._frames) > MAX_FRAMES:
            del self._frames[0]
            self.dropped += 1
        return []

    def _add_sound(self, piece: MediaSound) -> list[TimedUnit]:
        start_ms = self._origin_ms + piece.media_time_ms
        pcm = piece.pcm
        units: list[TimedUnit] = []
        if not self._rate:
            self._rate, self._start_ms = piece.rate, max(start_ms, self._silent_ms or 0.0)
        gap_ms = start_ms - self._end_ms
        if gap_ms > _FILLED_MS:
            units += self._flushed()
            self._start_ms = max(start_ms, self._silent_ms or 0.0)
        elif gap_ms > _LOOSE_MS:
            self._pcm += bytes(_BYTES * round(gap_ms * self._rate / 1000))
        elif gap_ms < -_LOOSE_MS:
            pcm = pcm[_BYTES * round(-gap_ms * self._rate / 1000) :]
        self._pcm += pcm
        size = _BYTES * BLOCK_MS * self._rate // 1000
        while len(self._pcm) >= size:
            units.append(self._unit(size))
        return units

    def _unit(self, size: int) -> TimedUnit:
        """The next so many bytes of sound, with the pictures taken before they end."""
        pcm = bytes(self._pcm[:size])
        start_ms = self._start_ms
        del self._pcm[:size]
        self._start_ms += len(pcm) / _BYTES * 1000 / self._rate
        frames = tuple(frame for frame in self._frames if frame.media_time_ms < self._start_ms)
        self._frames = self._frames[len(frames) :]
        return TimedUnit(InputUnit(frames, pcm), round(start_ms), self._start_ms - start_ms)

    def _flushed(self) -> list[TimedUnit]:
        units = [self._unit(len(self._pcm))] if self._pcm else []
        units += [self._without_sound(frame) for frame in self._frames]
        self._frames = []
        return units

    def _without_sound(self, frame: FrameInput) -> TimedUnit:
        """Where there must be sound, with the silence since what was before it; a second of it at most."""
        at = frame.media_time_ms
        if self._silence_hz is None:
            return TimedUnit(InputUnit((frame,)), at)
        before = max(self._silent_ms or 0.0, self._end_ms if self._rate else 0.0)
        start = max(before, at - _FILLED_MS) if self._silent_ms is not None or self._rate else at
        end = self._silent_ms = max(at, start + BLOCK_MS)
        count = round((end - start) * self._silence_hz / 1000)
        return TimedUnit(InputUnit((frame,), bytes(_BYTES * count)), round(start), end - start)
