"""Whether an engine keeps up: the time its units take, over the time they last."""

from __future__ import annotations

WINDOW_MS = 10_000
"""Of audio, about, that the average reaches back over."""
BEHIND, RECOVERED = 0.9, 0.7
SHORTEST_MS = 500
"""Answers to shorter units come through a pipeline of several: so much lag alone is not falling behind."""
IDLE_S = 15.0
"""Nothing was measured for so long: what was measured before says nothing about now."""


class Pace:
    """Moving average of the real-time factor over all sessions of one engine; above 1 audio falls behind.

    It starts at 0, so that a first slow unit (a model reads its prompt) is no alarm.
    """

    def __init__(self) -> None:
        self._factor = 0.0
        self._behind = False
        self._last_at: float | None = None

    def saw(self, now: float, unit_ms: int, took_ms: float) -> None:
        """A unit of ``unit_ms`` was answered after ``took_ms``; unusable figures are ignored."""
        if unit_ms <= 0 or not took_ms >= 0:
            return
        self._settle(now)
        self._last_at = now
        weight = min(1.0, unit_ms / WINDOW_MS)
        seen = min(took_ms / max(unit_ms, SHORTEST_MS), 10.0)
        self._factor += weight * (seen - self._factor)
        self._behind = self._factor > (RECOVERED if self._behind else BEHIND)

    def factor(self, now: float) -> float:
        self._settle(now)
        return self._factor

    def behind(self, now: float) -> bool:
        """It admits nobody until it has recovered."""
        self._settle(now)
        return self._behind

    def _settle(self, now: float) -> None:
        if self._last_at is not None and now - self._last_at >= IDLE_S:
            self._factor, self._behind, self._last_at = 0.0, False, None
