"""Who may use an engine now: live ticks first, background work in between, each fairly among tenants."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.runtime.fair_queue import FairQueue, Turn

LIVE, PREWARM, SUMMARY = "live", "prewarm", "summary"
KINDS = (LIVE, PREWARM, SUMMARY)
PATIENCE: Mapping[str, int] = {PREWARM: 64, SUMMARY: 256}
"""Turns of those before it that background work lets go first; then it goes though more of them wait."""


@dataclass(slots=True, eq=False)
class _Waiter(Turn):
    """``beside``: it may start while live ticks run; ``passed``: turns of those before it that it has let go
    first."""

    session_id: str
    kind: str
    future: asyncio.Future[None]
    since: float
    beside: bool = False
    passed: int = 0


class Permits:
    """``TickPermits`` of one engine.

    Live ticks and background work have bounds of their own, so a long summary never holds the place of a
    tick; but background work starts only while no live tick waits, and in a pause between live ticks rather
    than beside one: the engine would make that one wait. On an engine without pauses it lets one live tick
    go first and then starts all the same. Prewarm goes before summary. Where live ticks wait all the time,
    or prewarms before summaries, ``patience`` says how many of them go first: nothing starves. Where both
    have waited so long they take turns: a window needs one of each to make room for the next, and windows
    that can't do so grow, which costs more than either.

    What costs the engine is that it reads a prompt. A text that it has read (``read``) it writes word by
    word beside all else, so that one holds the place of no other.

    Among those of one kind that wait tenants take turns by weight, see ``FairQueue``.

    :param live: live ticks running at a time
    :param background: prewarms and summaries read at a time
    :param texts: summaries running at a time, those that are being written too
    :param patience: see ``PATIENCE``
    :param now: monotonic seconds
    :param waited: told for each permit that is given of what kind it is and how long it was waited for, in s
    """

    def __init__(
        self,
        live: int,
        background: int = 1,
        texts: int = 1,
        *,
        patience: Mapping[str, int] = PATIENCE,
        now: Callable[[], float] = time.monotonic,
        waited: Callable[[str, float], None] = lambda kind, seconds: None,
    ) -> None:
        self._bounds = {LIVE: live, "background": background, SUMMARY: texts}
        self._patience = patience
        self._clock = now
        self._waited = waited
        self._waiting: dict[str, FairQueue[_Waiter]] = {k: FairQueue() for k in KINDS}
        self._held: Counter[tuple[str, str]] = Counter()
        self._reading: Counter[tuple[str, str]] = Counter()
        self._overdue_last = PREWARM
        self._running = dict.fromkeys(KINDS, 0)
        self._granted: Counter[str] = Counter()

    async def live(self, session_id: str, *, tenant: str = "", weight: int = 1) -> None:
        """``weight``: of the tenant's turns against those of others."""
        await self._turn(self._waiter(session_id, LIVE, tenant, weight))

    async def background(
        self, session_id: str, kind: str, *, beside: bool = False, tenant: str = "", weight: int = 1
    ) -> None:
        """``kind``: ``prewarm`` or ``summary``; ``beside``: wait for no pause; ``weight`` as for ``live``."""
        if kind not in (PREWARM, SUMMARY):
            raise ValueError(f"unknown kind of background work: {kind}")
        waiter = self._waiter(session_id, kind, tenant, weight)
        waiter.beside = beside
        await self._turn(waiter)

    def read(self, session_id: str, kind: str) -> None:
        """The engine has read what one permit of that kind was for, and writes."""
        key = session_id, kind
        if self._reading[key] == 0:
            raise ValueError(f"session {session_id} holds no {kind} permit that is being read")
        self._take(self._reading, key)
        self._grant()

    def done(self, session_id: str, kind: str = LIVE) -> None:
        """Give back one permit of that kind."""
        key = session_id, kind
        if self._held[key] == 0:
            raise ValueError(f"session {session_id} holds no {kind} permit")
        self._running[kind] -= 1
        if self._reading[key] == self._held[key]:
            self._take(self._reading, key)
        self._take(self._held, key)
        self._grant()

    @staticmethod
    def _take(counted: Counter[tuple[str, str]], key: tuple[str, str]) -> None:
        counted[key] -= 1
        if counted[key] == 0:
            del counted[key]

    def statistics(self) -> dict[str, dict[str, int]]:
        return {
            "waiting": {kind: len(self._waiting[kind]) for kind in KINDS},
            "running": dict(self._running),
            "granted": {kind: self._granted[kind] for kind in KINDS},
        }

    def longest_wait_s(self) -> dict[str, float]:
        """How long the one who has waited longest has done so by now, by kind; 0: nobody waits."""
        now = self._clock()
        first = {kind: next(iter(queue), None) for kind, queue in self._waiting.items()}
        return {kind: now - waiter.since if waiter else 0.0 for kind, waiter in first.items()}

    def _waiter(self, session_id: str, kind: str, tenant: str, weight: int) -> _Waiter:
        turn = asyncio.get_running_loop().create_future()
        return _Waiter(session_id, kind, turn, self._clock(), tenant=tenant, cost=1 / weight)

    async def _turn(self, waiter: _Waiter) -> None:
        self._waiting[waiter.kind].add(waiter)
        self._grant()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                self._give_up(waiter)
            else:
                self.done(waiter.session_id, waiter.kind)  # granted and cancelled at the same moment
            raise

    def _give_up(self, waiter: _Waiter) -> None:
        self._waiting[waiter.kind].remove(waiter)
        self._grant()

    def _grant(self) -> None:
        while self._running[LIVE] < self._bounds[LIVE] and self._pass(LIVE):
            pass
        while self._background_free() and (
            self._pass_overdue() or (not self._live_waits() and (self._pass(PREWARM) or self._pass(SUMMARY)))
        ):
            pass

    def _pass_overdue(self) -> bool:
        turns = (PREWARM, SUMMARY) if self._overdue_last == SUMMARY else (SUMMARY, PREWARM)
        for kind in turns:
            if self._pass(kind, overdue=True):
                self._overdue_last = kind
                return True
        return False

    def _pass(self, kind: str, *, overdue: bool = False) -> bool:
        """Grant the first waiter that may start now and was not cancelled meanwhile; False: there is none."""
        queue = self._waiting[kind]
        if not queue or (kind == SUMMARY and self._running[SUMMARY] >= self._bounds[SUMMARY]):
            return False
        pause = kind == LIVE or not self._running[LIVE]

        def may_start(waiter: _Waiter) -> bool:
            return waiter.passed >= self._patience[kind] if overdue else pause or waiter.beside

        ready = [each for each in queue if not each.future.done() and may_start(each)]
        if not ready:
            return False
        waiter = queue.first(ready)
        queue.give(waiter)
        self._held[waiter.session_id, kind] += 1
        if kind != LIVE:
            self._reading[waiter.session_id, kind] += 1
        self._running[kind] += 1
        self._granted[kind] += 1
        self._let_go_first(kind)
        self._waited(kind, self._clock() - waiter.since)
        waiter.future.set_result(None)
        return True

    def _let_go_first(self, kind: str) -> None:
        """One of this kind starts before all that come after it."""
        for later in KINDS[KINDS.index(kind) + 1 :]:
            for waiter in self._waiting[later]:
                waiter.passed += 1
                waiter.beside = waiter.beside or kind == LIVE

    def _live_waits(self) -> bool:
        return any(not waiter.future.done() for waiter in self._waiting[LIVE])

    def _background_free(self) -> bool:
        return self._reading.total() < self._bounds["background"]
