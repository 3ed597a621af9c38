"""Is the engine of this session answering? Judged by real answers in time, pure."""

from __future__ import annotations

WEDGED_AFTER = 3
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 5.0


class EngineHealth:
    """Counts what failed in a row and says how long to wait before the next try."""

    def __init__(self) -> None:
        self.lost = False
        self._misses = 0
        self._tries = 0

    def answered(self) -> bool:
        """A real answer came in time. True: the engine had been lost and is back."""
        back, self.lost = self.lost, False
        self._misses = self._tries = 0
        return back

    def missed(self) -> bool:
        """A deadline passed or the engine failed inside. True: it is now taken for wedged."""
        self._misses += 1
        self._tries += 1
        return self._misses >= WEDGED_AFTER and self._lose()

    def unreachable(self) -> bool:
        """There is no connection. True: the engine is lost as of now."""
        self._tries += 1
        return self._lose()

    def _lose(self) -> bool:
        fresh, self.lost = not self.lost, True
        return fresh

    @property
    def backoff_s(self) -> float:
        """0.5 s after the first failure, doubled with each, at most 5 s."""
        return float(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(10, max(0, self._tries - 1))))
