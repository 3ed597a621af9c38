"""Facts on their way to the webhook: each session's in order, each until it is taken or too old.

A reader of every session's log, with a bookmark in the store: nothing queues in memory, a receiver that is
down costs nothing but its lateness, and what was not delivered when the process ended is delivered by the
next one. So an event may come twice; its id is the same then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import orjson

from bridges.webhook import WebhookError
from memory.store.base import Entry
from memory.store.errors import SessionGone, StoreError
from memory.store.session import SessionInfo
from memory.store.store import Store
from orchestrator.session.backend import Clock
from orchestrator.tail import Bells, Tail

BOOKMARK = "webhook"
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0
_IDLE_S = 60.0
_CLOSE_S = 2.0

Choose = Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]
"""From a fact's kind and data to what is told of it; ``None``: nothing."""

_log = logging.getLogger(__name__)


class Receiver(Protocol):
    async def post(self, event_id: str, body: bytes) -> None:
        """Raises ``WebhookError``."""


class Deliveries:
    """
    :param keep_s: seconds after which an event is given up
    :param count: told of each event that was ``delivered``, ``refused``, ``expired``, or ``failed`` once more
    """

    def __init__(
        self,
        receiver: Receiver,
        store: Store,
        choose: Choose,
        clock: Clock,
        keep_s: float,
        count: Callable[[str], None],
    ) -> None:
        self._receiver = receiver
        self._store = store
        self._choose = choose
        self._clock = clock
        self._keep_ms = round(1000 * keep_s)
        self._count = count
        self._bells = Bells()
        self._readers: dict[str, tuple[Tail, asyncio.Task[None]]] = {}
        self._waiting: dict[str, int] = {}

    async def start(self) -> None:
        """Go on with what an earlier process left undelivered."""
        for session_id, seq in (await self._store.bookmarks(BOOKMARK)).items():
            if session_id not in self._readers:
                self._read(session_id, seq, follow=False)

    async def session(self, session_id: str) -> None:
        """Read a session that opens, from its bookmark, or from now on."""
        there = self._readers.get(session_id)
        if there is not None:
            there[0].follow = True
            return
        seq = (await self._store.bookmarks(BOOKMARK, session_id)).get(session_id)
        if seq is None:
            seq = (await self._store.info(session_id)).last_seq
            await self._store.bookmark(session_id, BOOKMARK, seq)
        if session_id not in self._readers:
            self._read(session_id, seq, follow=True)

    def news(self, session_id: str, seq: int = 0) -> None:
        """A fact was appended, or the session is over."""
        self._bells.ring(session_id, seq)

    async def forget(self, session_id: str) -> None:
        """The session is being deleted: nothing more of it is told."""
        there = self._readers.pop(session_id, None)
        if there is not None:
            there[1].cancel()
            await asyncio.gather(there[1], return_exceptions=True)

    async def aclose(self) -> None:
        """Deliver what is there as far as that goes at once; the bookmarks keep the rest."""
        for tail, _ in self._readers.values():
            tail.follow = False
        self._bells.stop()
        tasks = [task for _, task in self._readers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[str, float]:
        """``readers``; of them ``waiting`` with an event not taken yet; ``late_s``: age of the oldest."""
        oldest = min(self._waiting.values(), default=None)
        late_ms = 0 if oldest is None else max(0, self._clock.wall_ms() - oldest)
        return {"readers": len(self._readers), "waiting": len(self._waiting), "late_s": late_ms / 1000}

    # --- one session ------------------------------------------------------------------------------------

    def _read(self, session_id: str, seq: int, *, follow: bool) -> None:
        tail = Tail(self._store, self._bells, session_id, seq, follow=follow)
        task = asyncio.create_task(self._run(tail), name=f"webhook {session_id}")
        self._readers[session_id] = tail, task

    async def _run(self, tail: Tail) -> None:
        try:
            while True:
                try:
                    await self._read_on(tail)
                    if tail.reason == "caught_up" and tail.follow:
                        continue  # its session was taken up while the last of it was sent
                    return
                except SessionGone:
                    return
                except StoreError:
                    _log.exception("session %s: its events can't be read now", tail.session_id)
                await self._clock.sleep(BACKOFF_MAX_S)
        finally:
            there = self._readers.get(tail.session_id)
            if there is not None and there[0] is tail:
                del self._readers[tail.session_id]

    async def _read_on(self, tail: Tail) -> None:
        """From the tail's place to its end. Where it breaks off, the tail stands behind what was done."""
        start = done = tail.seq
        info = await self._store.info(tail.session_id)
        try:
            async with aclosing(tail.pages(_IDLE_S)) as pages:
                async for page in pages:
                    for entry in page:
                        await self._entry(info, entry)
                        done = entry.seq
            if tail.reason != "deleted" and done > start:
                await self._store.bookmark(tail.session_id, BOOKMARK, done)
        finally:
            tail.seq = done

    async def _entry(self, info: SessionInfo, entry: Entry) -> None:
        told = self._choose(entry.kind, entry.data)
        if told is None:
            return
        event_id = f"{info.id}:{entry.seq}"
        event = {
            "id": event_id,
            "kind": entry.kind,
            "seq": entry.seq,
            "at_ms": entry.at_ms,
            "session_id": info.id,
            "alias": info.alias,
            "tenant": info.tenant,
            "data": told,
        }
        await self._deliver(info.id, entry.at_ms, event_id, orjson.dumps(event))
        await self._store.bookmark(info.id, BOOKMARK, entry.seq)

    async def _deliver(self, session_id: str, at_ms: int, event_id: str, body: bytes) -> None:
        backoff_s = BACKOFF_FIRST_S
        self._waiting[session_id] = at_ms
        try:
            while self._clock.wall_ms() < at_ms + self._keep_ms:
                try:
                    await self._receiver.post(event_id, body)
                except WebhookError as error:
                    if error.final:
                        self._count("refused")
                        _log.warning("event %s: %s", event_id, error)
                        return
                    self._count("failed")
                    await self._clock.sleep(error.retry_after_s or backoff_s)
                    backoff_s = min(BACKOFF_MAX_S, 2 * backoff_s)
                else:
                    self._count("delivered")
                    return
            self._count("expired")
            _log.warning("event %s was never taken and is given up", event_id)
        finally:
            self._waiting.pop(session_id, None)
