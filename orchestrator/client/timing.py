"""When the sound of each response came, on the client's own monotonic clock, sans-IO.

The clocks of server and engine are never mixed in, and nothing is called by a name that leaves its origin
open. Events that name no response that was announced are ignored.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from orchestrator.client.protocol import Incoming
from orchestrator.wire import server as wire

_BYTES_PER_SAMPLE = 2


@dataclass(slots=True)
class _Times:
    """Of one response, in seconds. ``chunks_ms``: how long each chunk plays."""

    created: float
    commit: float | None
    audio: list[float] = field(default_factory=list)
    chunks_ms: list[float] = field(default_factory=list)


class ResponseTimings:
    """Tell it of every event as it is received, and of commits as they are sent; times in seconds."""

    def __init__(self) -> None:
        self._times: dict[str, _Times] = {}
        self._commits: deque[float] = deque()

    def committed(self, now: float) -> None:
        """An explicit commit that asks for a response was sent; the next one announced is its own."""
        self._commits.append(now)

    def take(self, event: Incoming, now: float) -> None:
        match event:
            case wire.ResponseCreated(response_id=response_id) if response_id not in self._times:
                commit = self._commits.popleft() if self._commits else None
                self._times[response_id] = _Times(now, commit)
            case wire.AudioDelta(response_id=response_id) if response_id in self._times:
                times = self._times[response_id]
                times.audio.append(now)
                times.chunks_ms.append(duration_ms(event))

    def report(self, response_id: str) -> dict[str, Any]:
        """In ms; empty for a response that was never announced."""
        times = self._times.get(response_id)
        if times is None:
            return {}
        first = times.audio[0] if times.audio else None
        gaps = [1000 * (b - a) for a, b in pairwise(times.audio)]
        commit = None if first is None or times.commit is None else 1000 * (first - times.commit)
        created = None if first is None else 1000 * (first - times.created)
        return {
            "response_created_to_first_audio_ms": _rounded(created),
            "commit_to_first_audio_ms": _rounded(commit),
            "inter_chunk_gap_ms": spread(gaps),
            "chunk_duration_ms": spread(times.chunks_ms),
            "max_chunk_gap_ms": _rounded(max(gaps)) if gaps else None,
        }


def duration_ms(event: wire.AudioDelta) -> float:
    """How long a chunk of PCM16 plays."""
    # Base64: four characters are three bytes, less what pads the end.
    size = len(event.delta) * 3 // 4 - event.delta[-2:].count("=")
    return 1000 * (size // _BYTES_PER_SAMPLE) / event.sample_rate_hz


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Count, mean, p50, p95 (between neighbours) and the largest; without values only the count."""
    if not values:
        return {"count": 0}
    ranked = sorted(values)
    return {
        "count": len(ranked),
        "mean": _rounded(math.fsum(ranked) / len(ranked)),
        "p50": _rounded(_quantile(ranked, 0.5)),
        "p95": _rounded(_quantile(ranked, 0.95)),
        "max": _rounded(ranked[-1]),
    }


def _quantile(ranked: Sequence[float], share: float) -> float:
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
