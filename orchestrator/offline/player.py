"""A player that makes no sound, sans-IO: what of each response would have been heard by now, and when.

Responses play one after the other, each from the moment its first chunk is there. Times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.wire.audio import Resampler, Samples

_ROUNDING_S = 1e-6


@dataclass(slots=True)
class _Chunk:
    response_id: str
    start: float
    samples: Samples
    rate_hz: int

    @property
    def length(self) -> float:
        return self.samples.size / self.rate_hz

    @property
    def end(self) -> float:
        return self.start + self.length


class Player:
    """:param began: when the stream began, the zero of what was heard"""

    def __init__(self, began: float) -> None:
        self._began = began
        self._chunks: list[_Chunk] = []
        self._free = began

    def add(self, response_id: str, samples: Samples, rate_hz: int, now: float) -> None:
        """A chunk came; it plays as soon as all before it is over."""
        chunk = _Chunk(response_id, max(now, self._free), samples, rate_hz)
        self._chunks.append(chunk)
        self._free = chunk.end

    def cut(self, response_id: str, now: float) -> None:
        """The response was cancelled: nothing more of it is heard, and what waits behind it comes earlier."""
        kept: list[_Chunk] = []
        self._free = self._began
        for chunk in self._chunks:
            if chunk.start >= now:
                chunk.start = max(now, self._free)
            if chunk.response_id == response_id and chunk.end > now:
                chunk.samples = chunk.samples[: max(0, round((now - chunk.start) * chunk.rate_hz))]
            if chunk.samples.size:
                kept.append(chunk)
                self._free = max(self._free, chunk.end)
        self._chunks = kept

    def played_ms(self, response_id: str, now: float) -> int:
        """How much of a response was heard."""
        mine = (chunk for chunk in self._chunks if chunk.response_id == response_id)
        return int(1000 * sum(min(max(0.0, now - chunk.start), chunk.length) for chunk in mine) + 1e-6)

    def idle(self, now: float) -> bool:
        """Everything was heard to its end."""
        return now >= self._free - _ROUNDING_S

    def heard(self, rate_hz: int) -> Samples:
        """Everything on the clock of the stream, with silence between, at that rate."""
        end = max((chunk.end for chunk in self._chunks), default=self._began)
        out = np.zeros(round((end - self._began) * rate_hz) + 1, np.float32)
        for run in self._runs():
            source = run[0].rate_hz
            samples = np.concatenate([chunk.samples for chunk in run])
            if source != rate_hz:
                samples = Resampler(source, rate_hz).push(samples, last=True)
            start = round((run[0].start - self._began) * rate_hz)
            room = out[start : start + samples.size]
            room += samples[: room.size]
        return out if self._chunks else out[:0]

    def _runs(self) -> list[list[_Chunk]]:
        """Chunks that follow each other without a gap and at one rate."""
        runs: list[list[_Chunk]] = []
        for chunk in self._chunks:
            last = runs[-1][-1] if runs else None
            if last is not None and abs(last.end - chunk.start) < 1e-6 and last.rate_hz == chunk.rate_hz:
                runs[-1].append(chunk)
            else:
                runs.append([chunk])
        return runs
