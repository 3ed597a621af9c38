"""Silence continuation: while a response is open and the user sends nothing, the model's clock goes on.

Some engines feed themselves silence; for the others one unit a period is made here, up to a limit for one
response. Sans-IO: ``due`` says when, ``feed`` what.
"""

from __future__ import annotations

from orchestrator.backends.native.responses import Bound

AUTO_UNITS, TURN_UNITS = 64, 8
"""Units of silence for one response."""


class Continuation:
    """:param unit_s: seconds of one unit; ``limit`` of units for one response"""

    def __init__(self, unit_s: float, *, auto: bool) -> None:
        self._unit_s = unit_s
        self._limit = AUTO_UNITS if auto else TURN_UNITS
        self._last_at: float | None = None

    def written(self, now: float) -> None:
        """A unit, of whatever origin, was written."""
        self._last_at = now

    def due(self, bound: Bound | None) -> float | None:
        """When the next unit of silence is due; ``None``: while nothing is open, never."""
        if bound is None or self._last_at is None:
            return None
        return self._last_at + self._unit_s

    def spent(self, bound: Bound) -> bool:
        """The response has had all the silence it may have."""
        return bound.silence_units >= self._limit
