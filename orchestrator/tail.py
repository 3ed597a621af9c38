"""Readers of a session's log: what is there from any fact on, then what comes, each fact once and in order.

The log itself is the buffer: a reader holds one page, however far behind it is. Only durable facts are
given out, so that no crash can take back what a reader has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from memory.store.base import Entry
from memory.store.errors import SessionGone
from memory.store.store import Store


@dataclass(slots=True, eq=False)
class Bell:
    """Rung at news of one session. ``newest``: seq of the newest fact heard of; ``deleting``: the session is
    being deleted, or is gone already."""

    rung: asyncio.Event = field(default_factory=asyncio.Event)
    newest: int = 0
    deleting: bool = False


class Bells:
    """Who waits for news of which session."""

    def __init__(self) -> None:
        self._bells: dict[str, set[Bell]] = {}
        self._deleting: set[str] = set()
        self.stopped = False

    @contextmanager
    def listen(self, session_id: str) -> Iterator[Bell]:
        bell = Bell(deleting=session_id in self._deleting)
        self._bells.setdefault(session_id, set()).add(bell)
        try:
            yield bell
        finally:
            there = self._bells[session_id]
            there.discard(bell)
            if not there:
                del self._bells[session_id]

    def ring(self, session_id: str, seq: int = 0) -> None:
        """There is news of a session, its fact ``seq`` for one."""
        for bell in self._bells.get(session_id, ()):
            bell.newest = max(bell.newest, seq)
            bell.rung.set()

    @contextmanager
    def deleting(self, session_id: str) -> Iterator[None]:
        """While this lasts, the session's end is part of its deletion; if that fails, it just ended."""
        self._deleting.add(session_id)
        self._mark(session_id, True)
        try:
            yield
        except BaseException:
            self._mark(session_id, False)
            raise
        finally:
            self._deleting.discard(session_id)
            self.ring(session_id)

    def _mark(self, session_id: str, deleting: bool) -> None:
        for bell in self._bells.get(session_id, ()):
            bell.deleting = deleting

    def stop(self) -> None:
        """No more news: every reader ends."""
        self.stopped = True
        for there in self._bells.values():
            for bell in there:
                bell.rung.set()


class Tail:
    """One reader of one session. Read ``pages`` once.

    :param after: the last fact it knows
    :param follow: go on when all that is there was read; may be changed while it reads
    """

    def __init__(
        self, store: Store, bells: Bells, session_id: str, after: int, *, follow: bool = True
    ) -> None:
        self.session_id = session_id
        self.seq = after
        self.follow = follow
        self.reason: str | None = None
        """Why the reading ended: ``session_closed``, ``deleted``, ``shutdown`` or ``caught_up``."""
        self._store = store
        self._bells = bells
        self._bell = Bell()
        self._live = False

    @property
    def behind(self) -> int:
        """Facts that a reader who had come to the end once has fallen behind again."""
        return max(0, self._bell.newest - self.seq) if self._live else 0

    async def pages(self, idle_s: float) -> AsyncGenerator[Sequence[Entry], None]:
        """Facts as they come; an empty page when none came for ``idle_s`` seconds. Raises ``StoreError``."""
        with self._bells.listen(self.session_id) as self._bell:
            while True:
                self._bell.rung.clear()
                try:
                    async for page in self._store.entries(self.session_id, self.seq):
                        self.seq = page[-1].seq
                        yield page
                    # Asked first: of a session that nobody has open, the record that follows is the last.
                    is_open = self._store.is_open(self.session_id)
                    info = await self._store.info(self.session_id)
                except SessionGone:
                    self.reason = "deleted"
                    return
                if info.last_seq > self.seq:
                    continue
                self._live = True
                # Its last fact may come after the record of its end, but never once nobody has it open.
                over = info.closed_ms is not None and not is_open
                self.reason = self._end(closed=over and not self._bell.deleting)
                if self.reason is not None:
                    return
                try:
                    async with asyncio.timeout(idle_s):
                        await self._bell.rung.wait()
                except TimeoutError:
                    yield ()

    def _end(self, *, closed: bool) -> str | None:
        if closed:
            return "session_closed"
        if self._bells.stopped:
            return "shutdown"
        return None if self.follow else "caught_up"
