"""What the sessions here have waiting, all together, as a scrape tells it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

AT_ONCE = 64
"""Sessions that are looked at before others have their turn: a few milliseconds."""

Sizes = Mapping[str, Mapping[str, int]]
"""By part of a session and by name. What nobody told is 0."""


def _sizes() -> defaultdict[str, Counter[str]]:
    return defaultdict(Counter)


@dataclass(slots=True)
class SessionSums:
    """
    :param commands: not taken yet; ``input_bytes``: that no model has; ``events``: that no reader has
    :param lag_s: of the session that is furthest behind
    :param sizes: what waits in the sessions' backends
    """

    commands: int = 0
    input_bytes: int = 0
    events: int = 0
    lag_s: float = 0.0
    sizes: defaultdict[str, Counter[str]] = field(default_factory=_sizes)

    def add(self, session: Mapping[str, Any], sizes: Sizes, lag_s: float | None) -> None:
        """:param session: its ``statistics()``; ``sizes``: its backend's"""
        self.commands += session["mailbox"]
        self.input_bytes += session["pending_input_bytes"]
        self.events += sum(reader["queued"] for reader in session["subscriptions"])
        self.lag_s = max(self.lag_s, lag_s or 0.0)
        for part, figures in sizes.items():
            self.sizes[part].update(figures)


async def summed(names: Iterable[str], add: Callable[[SessionSums, str], None]) -> SessionSums:
    """
    :param names: of sessions; ``add``: adds one, which may be gone by then
    """
    sums = SessionSums()
    for number, name in enumerate(names, 1):
        add(sums, name)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return sums
