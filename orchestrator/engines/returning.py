"""Sessions that come to an engine with nothing of them in its cache: few at a time, high classes first."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from bridges.circuit import Clock
from orchestrator.engines.room import Priority

PLACE_S = 20.0
"""How long a session may take to be read in; one that shows nothing more gives its place to others then."""


class ColdLane:
    """:param bound: cold sessions that one engine reads in at a time"""

    def __init__(self, bound: int, clock: Clock) -> None:
        self._bound = bound
        self._clock = clock
        self._reading: dict[str, float] = {}
        self._waiting: list[tuple[int, int, str, asyncio.Future[None]]] = []
        self._order = count()

    async def enter(self, session: str, priority: Priority) -> None:
        """Wait for a place. It is held for ``PLACE_S`` or until ``leave``, which also ends the wait of one
        that is to have none."""
        if session in self._reading:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._order), session, turn))
        self._grant()
        try:
            while not turn.done():
                alarm = asyncio.ensure_future(self._clock.sleep(PLACE_S))
                try:
                    await asyncio.wait({turn, alarm}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    alarm.cancel()
                self._grant()
        except asyncio.CancelledError:
            self.leave(session)  # whether it was granted or not
            turn.cancel()
            raise

    def leave(self, session: str) -> None:
        """It was answered, or is gone. Nothing happens where it held no place."""
        self._reading.pop(session, None)
        for *_, waiting, turn in self._waiting:
            if waiting == session and not turn.done():
                turn.set_result(None)
        self._grant()

    def statistics(self) -> dict[str, int]:
        return {"reading": len(self._reading), "waiting": sum(not t.done() for *_, t in self._waiting)}

    def _grant(self) -> None:
        now = self._clock.now()
        self._reading = {session: since for session, since in self._reading.items() if now < since + PLACE_S}
        while self._waiting and len(self._reading) < self._bound:
            *_, session, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._reading[session] = now
                turn.set_result(None)
