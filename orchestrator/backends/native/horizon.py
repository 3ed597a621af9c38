"""How much of one engine session's context is used: an estimate that the engine's own counts correct."""

from __future__ import annotations

import math

from memory.tokens import estimate
from prompts.native import Horizon

SPARE_SHARE = 0.05
"""Of the context, kept free for what is still under way when a switch is forced."""
SPARE_UNITS = 2


def slides(mode: object) -> bool:
    """An engine's ``sliding_window_mode`` drops old context itself, so nothing ever runs full."""
    return isinstance(mode, str) and mode.strip().lower() not in ("", "off")


class Context:
    """The context of one engine session, in tokens.

    :param seed: the text it was opened with
    :param unlimited: it never runs full (``slides``), whatever the profile says
    :param unit_ms: audio of one append
    """

    def __init__(
        self, horizon: Horizon, *, unit_ms: int, seed: str | None = None, unlimited: bool = False
    ) -> None:
        self._horizon = horizon
        self._limit = None if unlimited else horizon.context_tokens
        self._start = horizon.prefix_tokens + estimate(seed or "")
        self._base = float(self._start)
        self._since = 0.0
        self._answer = self.cost(unit_ms)
        """What is said to one unit takes about as much as the unit."""
        self._spare = math.ceil(max((self._limit or 0) * SPARE_SHARE, SPARE_UNITS * self.cost(unit_ms, 1)))
        self.counts = 0
        """How often the engine has said its own count."""

    @property
    def limit(self) -> int | None:
        """Tokens it holds; ``None``: without end."""
        return self._limit

    @property
    def tokens(self) -> int:
        return math.ceil(self._base + self._since)

    @property
    def prepare_at(self) -> float:
        """Tokens from which a fresh session is prepared. One that starts nearly full uses half of its room
        first, so that rollovers never chase one another."""
        if self._limit is None:
            return math.inf
        return max(self._horizon.rollover_at * self._limit, (self._start + self.force_at) / 2)

    @property
    def hurry_at(self) -> float:
        """Half of the way from ``prepare_at`` to ``force_at``: what was waited for is waited for no more."""
        return (self.prepare_at + self.force_at) / 2

    @property
    def force_at(self) -> float:
        """Tokens from which a switch waits for nothing but a fresh session."""
        return math.inf if self._limit is None else self._limit - self._spare

    @property
    def pressure(self) -> float:
        """0 at ``prepare_at`` and before, 1 at ``force_at`` and after."""
        if self._limit is None:
            return 0.0
        span = self.force_at - self.prepare_at
        return min(1.0, max(0.0, (self.tokens - self.prepare_at) / span)) if span > 0 else 1.0

    def statistics(self) -> dict[str, int]:
        """``counts``: how often the engine has said its own count. ``limit`` 0: without end."""
        return {"tokens": self.tokens, "limit": self._limit or 0, "counts": self.counts}

    def cost(self, audio_ms: int, frame_groups: int = 0) -> float:
        """Tokens of an append."""
        horizon = self._horizon
        return audio_ms / 1000 * horizon.tokens_per_second + frame_groups * horizon.tokens_per_frame

    def fits(self, audio_ms: int, frame_groups: int = 0) -> bool:
        """One more append, and what may be said to it, does not overflow it."""
        if self._limit is None:
            return True
        return self._base + self._since + self.cost(audio_ms, frame_groups) <= self._limit - self._answer

    def unit(self, audio_ms: int, frame_groups: int = 0) -> None:
        """An append was written, or the engine fed itself that much silence."""
        self._since += self.cost(audio_ms, frame_groups)

    def output(self, tokens: int) -> None:
        self._since += max(0, tokens)

    def counted(self, tokens: int) -> None:
        """The engine's own count of the whole context. What is written from now on is added to it."""
        if tokens > 0:
            self._base, self._since = float(tokens), 0.0
            self.counts += 1
