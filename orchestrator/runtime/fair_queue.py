"""Whose turn it is where several tenants wait: start-time fair queueing (Goyal, Vin, Cheng 1996)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_TENANTS = 1024
"""Tenants whose turns are remembered before those are forgotten who have waited for nobody."""


@dataclass(slots=True, eq=False, kw_only=True)
class Turn:
    """``cost``: one over the tenant's weight; ``came``: in virtual time."""

    tenant: str
    cost: float
    came: float = 0.0


T = TypeVar("T", bound=Turn)


class FairQueue(Generic[T]):
    """Those who wait, in the order in which they came.

    Tenants take turns by weight: one with many sessions delays others no more than one with few. Within a
    tenant the first that came is the first that goes. Only turns that were given count: of one that was
    waited for and given up nothing stays, neither for its tenant nor for those who came behind it.
    """

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._now = 0.0
        self._ends: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        return iter(self._waiting)

    @property
    def owing(self) -> int:
        """Tenants who had a turn that others, who still wait, may have to catch up with."""
        return len(self._ends)

    def add(self, turn: T) -> None:
        if len(self._ends) > _TENANTS:
            self._ends = {each: end for each, end in self._ends.items() if end > self._now}
        turn.came = self._now
        self._waiting.append(turn)

    def first(self, ready: Sequence[T]) -> T:
        """Of some of those who wait, in their order: of each tenant's first the one whose turn starts first,
        of equals the first that came."""
        firsts: dict[str, T] = {}
        for turn in ready:
            firsts.setdefault(turn.tenant, turn)
        return min(firsts.values(), key=self._start)

    def give(self, turn: T) -> None:
        """It is this one's turn."""
        self._now = self._start(turn)
        self._ends[turn.tenant] = self._now + turn.cost
        self.remove(turn)

    def remove(self, turn: T) -> None:
        """It waits no more."""
        self._waiting.remove(turn)
        if not self._waiting:
            self._ends.clear()  # whoever comes next has waited for nobody

    def _start(self, turn: T) -> float:
        """In virtual time, of a tenant's first: never before now."""
        return max(turn.came, self._ends.get(turn.tenant, 0.0))
