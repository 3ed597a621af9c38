"""When in the period each session of one engine begins the ticks that Vigil times itself. Pure."""

from __future__ import annotations

import math
from itertools import pairwise


class Phases:
    """Sessions that begin together ask together, and the last of them waits for all others. So each one is
    given a phase of its own: the middle of the widest gap between those that are there. (Sessions that ask in
    groups, so that the engine batches them, wait longer at every load: ``evals.bench.phases``.)

    A phase is a share of the period, from 0 to 1. It stays while the session does.
    """

    def __init__(self) -> None:
        self._phases: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._phases)

    def take(self, session: str) -> float:
        """The session's phase; a new one where it has none yet."""
        phase = self._phases.get(session)
        if phase is None:
            phase = self._phases[session] = self._middle()
        return phase

    def turn_after(self, session: str, moment: float, period_s: float) -> float:
        """The first moment of a session's phase that is not before this one; monotonic seconds."""
        phase = self.take(session)
        return (math.ceil(moment / period_s - phase) + phase) * period_s

    def leave(self, session: str) -> None:
        self._phases.pop(session, None)

    def _middle(self) -> float:
        taken = sorted(self._phases.values())
        if not taken:
            return 0.0
        gaps = pairwise([*taken, taken[0] + 1])
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
        return (start + end) / 2 % 1
