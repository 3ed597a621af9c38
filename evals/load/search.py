"""Finds the largest number of sessions that a service carries. Sans-IO: says what to try, hears what came."""

from __future__ import annotations


class Search:
    """Doubles until a try fails, then halves the gap. Takes it that what carries N carries fewer.

    :param most: sessions at most; ``first``: those to begin with
    :param within: the gap, as a share of what is carried, at which the answer is good enough
    :raises ValueError: no number of sessions lies between 1 and ``most``
    """

    def __init__(self, most: int, *, first: int = 1, within: float = 0.0) -> None:
        if most < 1 or first < 1:
            raise ValueError("at least one session is tried")
        self._most, self._first, self._within = most, min(first, most), within
        self._held, self._failed = 0, most + 1

    @property
    def capacity(self) -> int:
        """The most sessions that were carried so far."""
        return self._held

    @property
    def bounded(self) -> bool:
        """More sessions were tried and not carried."""
        return self._failed <= self._most

    def next(self) -> int | None:
        """What to try now; ``None``: it is found."""
        if not self.bounded:
            if self._held == self._most:
                return None
            return min(self._most, max(self._first, 2 * self._held))
        gap = self._failed - self._held
        if gap <= max(1.0, self._within * self._held):
            return None
        return self._held + gap // 2

    def tell(self, sessions: int, carried: bool) -> None:
        if carried:
            self._held = max(self._held, sessions)
        else:
            self._failed = min(self._failed, sessions)
