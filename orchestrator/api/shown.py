"""Which values of a label have a series of their own, where there may be any number of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

OTHERS = "other"
"""The value under which all the rest are counted."""
REVIEW = 10_000
"""Counts after which it is looked at who counts most."""
CANDIDATES = 4096
"""Values that are counted between two reviews."""
AHEAD = 2
"""A value takes the place of one that counted less than half as much: places change hands for a reason."""


class Shown:
    """The ``most`` values that count most lately; the first to come at first.

    A value that gets a place begins at zero and one that loses it loses its series; what was counted under
    ``OTHERS`` stays there. So no series ever falls.

    :param forget: told of each value that loses its place
    """

    def __init__(self, most: int, forget: Callable[[str], None]) -> None:
        self._most = most
        self._forget = forget
        self._shown: set[str] = set()
        self._lately: Counter[str] = Counter()
        self._seen = 0

    def count(self, value: str) -> str:
        """Count it once; the value to use as the label. One named like all the rest is one of them."""
        if value == OTHERS:
            return OTHERS
        if value in self._lately or len(self._lately) < CANDIDATES:
            self._lately[value] += 1
        if len(self._shown) < self._most:
            self._shown.add(value)
        self._seen += 1
        if self._seen >= REVIEW:
            self._review()
        return value if value in self._shown else OTHERS

    def _review(self) -> None:
        weakest = sorted(self._shown, key=lambda value: self._lately[value])
        others = (pair for pair in self._lately.most_common() if pair[0] not in self._shown)
        for (value, counted), weak in zip(others, weakest, strict=False):
            if counted <= AHEAD * self._lately[weak]:
                break
            self._shown.remove(weak)
            self._shown.add(value)
            self._forget(weak)
        self._lately.clear()
        self._seen = 0
