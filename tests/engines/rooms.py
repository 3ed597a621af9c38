"""Engines whose caches carry just so many sessions."""

from __future__ import annotations

import math

from orchestrator.engines.room import HANDOVERS, Caches, Need


def holding(sessions: int | None) -> Caches | None:
    """Caches that carry so many, whatever their turns take; ``None``: nothing is known of them."""
    if sessions is None:
        return None
    return Caches(Need(1, 1, 0, 0, 0, 0, 0), sessions + math.ceil(sessions * HANDOVERS), None)
