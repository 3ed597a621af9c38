"""One session's log on disk: appends are buffered, ``flush`` is the barrier."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import orjson
from sqlalchemy import Connection, RowMapping, Select, select

from memory.store.base import Entry
from memory.store.database import Database
from memory.store.errors import LogFull, StoreError
from memory.store.listeners import Listener, Listeners
from memory.store.schema import FACTS

Row = dict[str, Any]
"""A row of ``facts``: session, seq, at_ms, kind, data (JSON text)."""


@dataclass(frozen=True, slots=True)
class FrameWrite:
    """A frame whose bytes are on disk and whose record is not yet.

    :param expires_ms: Unix time after which the sweep may remove it, ``None``: never
    """

    session: str
    tenant: str
    uuid: str
    file: str
    data: bytes
    expires_ms: int | None


class LogWriter(Protocol):
    """What carries a log's rows to the database."""

    def touch(self, log: DurableLog) -> None:
        """The log has new rows or frames; they are written within the linger."""

    def hurry(self) -> None:
        """Someone waits: write what there is now."""


class DurableLog:
    """Append-only facts of one session, numbered from 1 without gaps.

    ``append`` never waits; rows reach the database within the writer's linger, or as soon as someone
    flushes. A crash loses at most what was not flushed, always from the end. Records of frames ride along, no
    later than any fact that was appended after them. After a failed write the log takes nothing more:
    ``append`` and ``flush`` raise the error, and what is durable is learned by opening the session again.

    :param seq: the last durable entry
    :param now_ms: Unix time in milliseconds, asked once per append
    :param max_pending: entries that may wait for the disk
    :param fence: of the lease that its rows are written under, where there are leases
    """

    def __init__(
        self,
        session: str,
        seq: int,
        *,
        database: Database,
        writer: LogWriter,
        now_ms: Callable[[], int],
        max_pending: int = 10_000,
        fence: int | None = None,
    ) -> None:
        self.session = session
        self.fence = fence
        self._database = database
        self._writer = writer
        self._now_ms = now_ms
        self._max_pending = max_pending
        self._seq = self._durable = self._taken = seq
        self._pending: deque[Row] = deque()
        self._frames: deque[FrameWrite] = deque()
        self._frames_put = self._frames_taken = self._frames_durable = 0
        self._left_over: list[str] = []
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._error: StoreError | None = None
        self._listeners = Listeners()

    @property
    def seq(self) -> int:
        """The newest entry, durable or not; 0 for an empty log."""
        return self._seq

    @property
    def unrecorded(self) -> int:
        """Frames whose records are not durable."""
        return len(self._frames)

    @property
    def error(self) -> StoreError | None:
        """Why the log failed, or ``None`` while it works."""
        return self._error

    def append(self, kind: str, data: Mapping[str, Any]) -> int:
        """Add a fact and return its ``seq``. ``data`` must be JSON (``TypeError`` otherwise).

        :raises LogFull: ``max_pending`` entries wait already; nothing was added
        :raises StoreError: an earlier write failed; nothing was added
        """
        self._raise_if_failed()
        if len(self._pending) >= self._max_pending:
            raise LogFull(f"{len(self._pending)} facts wait for the disk: flush before appending more")
        encoded = orjson.dumps(data)
        entry = Entry(self._seq + 1, self._now_ms(), kind, orjson.loads(encoded))
        self._seq = entry.seq
        self._pending.append(
            {
                "session": self.session,
                "seq": entry.seq,
                "at_ms": entry.at_ms,
                "kind": kind,
                "data": encoded.decode(),
            }
        )
        self._writer.touch(self)
        self._listeners.tell(entry)
        return entry.seq

    def attach(self, frame: FrameWrite) -> None:
        """Record a frame along with the facts.

        :raises StoreError: an earlier write failed; the file is left over
        """
        if self._error is not None:
            self._leave(frame)
        self._raise_if_failed()
        self._frames.append(frame)
        self._frames_put += 1
        self._writer.touch(self)

    async def flush(self, seq: int | None = None) -> None:
        """Return once everything appended before the call is durable, or all up to ``seq``; the frames so far
        are in any case.

        :raises StoreError: it will not be
        """
        self._raise_if_failed()
        until, frames = self._seq if seq is None else seq, self._frames_put
        if until <= self._durable and frames <= self._frames_durable:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((until, frames, waiter))
        if until > self._taken or frames > self._frames_taken:  # else it is on its way already
            self._writer.hurry()
        await waiter

    async def read(self, after: int = 0) -> Sequence[Entry]:
        """Entries with ``seq > after``, oldest first, those not yet durable too. Raises ``StoreError``."""
        waiting = [_entry(row) for row in self._pending if row["seq"] > after]
        durable = self._durable
        pages = [page async for page in self.pages(after, durable)]
        return [entry for page in pages for entry in page] + waiting

    async def pages(self, after: int, until: int, size: int = 2000) -> AsyncIterator[list[Entry]]:
        """Durable entries with ``after < seq <= until``, oldest first, ``size`` at a time."""
        while after < until:
            query = (
                select(FACTS.c.seq, FACTS.c.at_ms, FACTS.c.kind, FACTS.c.data)
                .where(FACTS.c.session == self.session, FACTS.c.seq > after, FACTS.c.seq <= until)
                .order_by(FACTS.c.seq)
                .limit(size)
            )
            rows = await self._database.read(partial(_fetch, query))
            if not rows:
                return
            yield [_entry(row) for row in rows]
            after = rows[-1]["seq"]

    def subscribe(self, callback: Listener) -> Callable[[], None]:
        """Call ``callback`` with each entry as it is appended; returns the function that ends it."""
        return self._listeners.subscribe(callback)

    def statistics(self) -> dict[str, int]:
        """``seq`` and ``durable`` (newest entries), ``pending``, ``frames`` not recorded yet, ``waiters``,
        ``listeners``."""
        return {
            "seq": self._seq,
            "durable": self._durable,
            "pending": len(self._pending),
            "frames": self.unrecorded,
            "waiters": len(self._waiters),
            "listeners": len(self._listeners),
        }

    # --- for the writer ------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Row]:
        """The oldest rows not yet handed to a transaction, at most ``limit``."""
        skip = self._taken - self._durable
        rows = list(islice(self._pending, skip, skip + limit))
        if rows:
            self._taken = rows[-1]["seq"]
        return rows

    def take_frames(self) -> list[FrameWrite]:
        """The frames not yet handed to a transaction. One that takes a fact takes all frames before it."""
        frames = list(islice(self._frames, self._frames_taken - self._frames_durable, None))
        self._frames_taken = self._frames_put
        return frames

    def take_left_over(self) -> list[str]:
        """Files that were written for nothing: the log failed before their frames were recorded."""
        files, self._left_over = self._left_over, []
        return files

    @property
    def has_rows(self) -> bool:
        """True when ``take`` would return rows."""
        return self._error is None and self._taken < self._seq

    def wrote(self, rows: int, frames: int) -> None:
        """The oldest so many rows and frames are durable."""
        if self._error is not None:
            return
        for _ in range(rows):
            self._durable = self._pending.popleft()["seq"]
        for _ in range(frames):
            self._frames.popleft()
        self._frames_durable += frames
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for entry in waiters:
            until, put, waiter = entry
            if until > self._durable or put > self._frames_durable:
                self._waiters.append(entry)
            elif not waiter.done():
                waiter.set_result(None)

    def fail(self, error: StoreError) -> None:
        """The log is over: everyone who waits or comes later gets ``error``. The first error stays."""
        if self._error is not None:
            return
        self._error = error
        self._pending.clear()
        self._taken = self._seq
        while self._frames:
            self._leave(self._frames.popleft())
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(type(error)(error.message))

    def _leave(self, frame: FrameWrite) -> None:
        self._left_over.append(frame.file)
        self._writer.touch(self)

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.message) from self._error


def _fetch(query: Select[Any], connection: Connection) -> Sequence[RowMapping]:
    return connection.execute(query).mappings().all()


def _entry(row: Mapping[Any, Any]) -> Entry:
    return Entry(row["seq"], row["at_ms"], row["kind"], orjson.loads(row["data"]))
