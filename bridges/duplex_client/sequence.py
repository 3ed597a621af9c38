"""The engine's event numbers: each event once and none missing, and when to acknowledge them."""

from __future__ import annotations

from enum import Enum, auto

ACK_S = 0.05
"""Acknowledgements are at least that far apart, unless much waits."""
ACK_EVENTS, ACK_BYTES = 32, 256 * 1024


class Verdict(Enum):
    FRESH = auto()
    REPEAT = auto()
    GAP = auto()


class Sequence:
    """``seen``: the newest number of an unbroken run from 1."""

    def __init__(self) -> None:
        self.seen = 0
        self._acked = 0
        self._bytes = 0
        self._acked_at = float("-inf")

    def judge(self, seq: int) -> Verdict:
        if seq <= self.seen:
            return Verdict.REPEAT
        return Verdict.FRESH if seq == self.seen + 1 else Verdict.GAP

    def take(self, seq: int, size: int) -> None:
        """The event is here; what lies before it is given up."""
        self.seen = seq
        self._bytes += size

    def ack_at(self) -> float | None:
        """When the next acknowledgement is due; ``-inf``: at once."""
        waiting = self.seen - self._acked
        if not waiting:
            return None
        much = waiting >= ACK_EVENTS or self._bytes >= ACK_BYTES
        return float("-inf") if much else self._acked_at + ACK_S

    def acknowledge(self, now: float) -> int:
        """The number to acknowledge now."""
        self._acked, self._bytes, self._acked_at = self.seen, 0, now
        return self.seen

    def repeat(self) -> None:
        """The socket was lost: what was acknowledged on it may not have arrived."""
        self._acked = max(0, min(self._acked, self.seen - 1))
