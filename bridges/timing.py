"""How long something takes, counted in buckets: for the metrics, without keeping every figure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Durations:
    """:param bounds: upper ends of the buckets, in s, rising; a last one without end comes on top"""

    def __init__(self, bounds: Sequence[float] = BOUNDS_S) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.total_s = 0.0

    def __len__(self) -> int:
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[float, int]]:
        """Upper ends, and how many took no longer than that; the last one is infinite and has them all."""
        return list(zip((*self._bounds, float("inf")), accumulate(self._counts), strict=True))
