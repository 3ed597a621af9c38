"""Who may use an engine now: live ticks first, fairly among tenants; background work in between."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass

LIVE, PREWARM, SUMMARY = "live", "prewarm", "summary"
KINDS = (LIVE, PREWARM, SUMMARY)
_TENANTS = 1024
"""Tenants whose turns are remembered before those are forgotten who have waited for nobody."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """``beside``: it may start while live ticks run; ``start``: in the virtual time of fair queueing."""

    session_id: str
    future: asyncio.Future[None]
    beside: bool
    start: float = 0.0


class Permits:
    """``TickPermits`` of one engine.

    Live ticks and background work have bounds of their own, so a long summary never holds the place of a
    tick; but background work starts only while no live tick waits, and in a pause between live ticks rather
    than beside one: the engine would make that one wait. On an engine without pauses it lets one live tick
    go first and then starts all the same. Prewarm goes before summary.

    Where live ticks wait, tenants take turns by weight (start-time fair queueing; Goyal, Vin, Cheng 1996):
    one with many sessions delays others no more than one with few. Within a tenant the first that came is
    the first that goes.

    :param live: live ticks running at a time
    :param background: prewarms and summaries running at a time
    """

    def __init__(self, live: int, background: int = 1) -> None:
        self._bounds = {LIVE: live, "background": background}
        self._waiting: dict[str, deque[_Waiter]] = {k: deque() for k in KINDS}
        self._held: Counter[tuple[str, str]] = Counter()
        self._granted: Counter[str] = Counter()
        self._now = 0.0
        self._ends: dict[str, float] = {}

    async def live(self, session_id: str, *, tenant: str = "", weight: int = 1) -> None:
        """``weight``: of the tenant's turns against those of others."""
        if len(self._ends) > _TENANTS:
            self._ends = {each: end for each, end in self._ends.items() if end > self._now}
        start = max(self._now, self._ends.get(tenant, 0.0))
        self._ends[tenant] = start + 1 / weight
        await self._acquire(session_id, LIVE, start=start)

    async def background(self, session_id: str, kind: str, *, beside: bool = False) -> None:
        """``kind``: ``prewarm`` or ``summary``; ``beside``: wait for no pause."""
        if kind not in (PREWARM, SUMMARY):
            raise ValueError(f"unknown kind of background work: {kind}")
        await self._acquire(session_id, kind, beside=beside)

    def done(self, session_id: str, kind: str = LIVE) -> None:
        """Give back one permit of that kind."""
        if self._held[session_id, kind] == 0:
            raise ValueError(f"session {session_id} holds no {kind} permit")
        self._held[session_id, kind] -= 1
        if self._held[session_id, kind] == 0:
            del self._held[session_id, kind]
        self._grant()

    def statistics(self) -> dict[str, dict[str, int]]:
        return {
            "waiting": {kind: len(self._waiting[kind]) for kind in KINDS},
            "running": {kind: self._running(kind) for kind in KINDS},
            "granted": {kind: self._granted[kind] for kind in KINDS},
        }

    async def _acquire(self, session_id: str, kind: str, *, beside: bool = False, start: float = 0.0) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(session_id, future, beside, start)
        self._waiting[kind].append(waiter)
        self._grant()
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._waiting[kind].remove(waiter)
                self._grant()
            else:
                self.done(session_id, kind)  # granted and cancelled at the same moment
            raise

    def _grant(self) -> None:
        while self._running(LIVE) < self._bounds[LIVE] and self._pass(LIVE):
            for kind in (PREWARM, SUMMARY):
                for waiter in self._waiting[kind]:
                    waiter.beside = True  # it has let one go first
        for kind in (PREWARM, SUMMARY):
            while not self._live_waits() and self._background_free() and self._pass(kind):
                pass

    def _pass(self, kind: str) -> bool:
        """Grant the first waiter that may start now and was not cancelled meanwhile; False: there is none."""
        pause = kind == LIVE or not self._running(LIVE)
        ready = [w for w in self._waiting[kind] if not w.future.done() and (pause or w.beside)]
        if not ready:
            return False
        waiter = min(ready, key=lambda each: each.start)  # of equals the first that came
        self._waiting[kind].remove(waiter)
        self._held[waiter.session_id, kind] += 1
        self._granted[kind] += 1
        if kind == LIVE:
            self._now = max(self._now, waiter.start)
            if not self._waiting[LIVE]:
                self._ends.clear()  # whoever comes next has waited for nobody
        waiter.future.set_result(None)
        return True

    def _live_waits(self) -> bool:
        return any(not waiter.future.done() for waiter in self._waiting[LIVE])

    def _background_free(self) -> bool:
        return self._running(PREWARM) + self._running(SUMMARY) < self._bounds["background"]

    def _running(self, kind: str) -> int:
        return sum(count for (_, held), count in self._held.items() if held == kind)
