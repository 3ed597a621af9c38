"""Sessions that come to an engine with nothing of them in its cache: few at a time, high classes first."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from orchestrator.engines.room import Priority


class ColdLane:
    """:param bound: cold sessions that one engine reads in at a time"""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._reading: set[str] = set()
        self._waiting: list[tuple[int, int, str, asyncio.Future[None]]] = []
        self._order = count()

    async def enter(self, session: str, priority: Priority) -> None:
        """Wait for a place; it is held until ``leave``, which also ends the wait of who is to have none."""
        if session in self._reading:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._order), session, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            self.leave(session)  # whether it was granted or not
            turn.cancel()
            raise

    def leave(self, session: str) -> None:
        """It was answered, or is gone. Nothing happens where it held no place."""
        self._reading.discard(session)
        for *_, waiting, turn in self._waiting:
            if waiting == session and not turn.done():
                turn.set_result(None)
        self._grant()

    def statistics(self) -> dict[str, int]:
        return {"reading": len(self._reading), "waiting": sum(not t.done() for *_, t in self._waiting)}

    def _grant(self) -> None:
        while self._waiting and len(self._reading) < self._bound:
            *_, session, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._reading.add(session)
                turn.set_result(None)
