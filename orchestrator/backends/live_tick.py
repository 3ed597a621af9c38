"""``LiveTick``: what an engine made of one tick, for whoever judges how engines keep up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveTick:
    """A live tick that the engine answered.

    :param lateness_s: from when it could have been asked to when it was known what the engine decides
    :param period_s: of the session
    :param promised: tokens that the prefix audit expected of the cache; ``kept``: of these, found there
    :param coalesced: it also stands for ticks before it that had no turn
    :param turn_tokens: what the session's turns take on average, where it was counted
    :param head_tokens: what its window has before its turns
    """

    lateness_s: float
    period_s: float
    kept: int
    promised: int
    coalesced: bool = False
    turn_tokens: int | None = None
    head_tokens: int | None = None
