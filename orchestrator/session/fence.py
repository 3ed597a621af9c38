"""Fences: which generation of output a piece of work belongs to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """(epoch, turn), ordered. Captured when work starts, compared when its result arrives.

    ``epoch`` grows on every cancel or barge-in; ``turn`` on every completed model turn.
    """

    epoch: int = 0
    turn: int = 0

    def is_stale(self, current: Fence) -> bool:
        """True when output stamped with this fence must be dropped: its epoch has been cancelled."""
        return self.epoch < current.epoch
