"""The one task that writes: whatever waits, from every session, in one transaction (group commit)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, case, exists, insert, or_, select

from memory.store.batch import write_batch
from memory.store.database import FRAMES_LOCK, Database, Refused
from memory.store.errors import LeaseLost, LogConflict, SessionGone, StoreError
from memory.store.files import FrameFiles
from memory.store.leases import lost_fences
from memory.store.log import DurableLog, FrameWrite, Row
from memory.store.schema import FACTS, FRAME_REFS, FRAMES, SESSIONS

_PAUSES_S = (0.05, 0.2, 0.5, 1.0)
"""Between tries while the database is away; the last one repeats."""

_INSERT_FACTS = insert(FACTS)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Part:
    """A log's share of a transaction, which stands or falls as one: facts, and frames that they may name."""

    log: DurableLog
    facts: list[Row]
    frames: list[FrameWrite]

    @property
    def session(self) -> str:
        return self.log.session

    @property
    def fence(self) -> int | None:
        return self.log.fence

    def succeed(self) -> None:
        self.log.wrote(len(self.facts), len(self.frames))

    def fail(self, error: StoreError) -> None:
        self.log.fail(error)


class GroupWriter:
    """Collects rows and frames of all logs and writes them in batches, one transaction at a time.

    A refused batch (another process wrote one of its logs, a session was deleted) is written again
    session by session, so one session's fault stays in that session.

    :param files: of the frames
    :param unrecorded: removes files that no record names
    :param linger_s: rows nobody waits for are written after this long
    :param max_rows: facts of one transaction
    :param patience_s: how long a transaction is tried again while the database is away; a try that broke
        off may have been committed, so its rows are looked for before a conflict is believed
    """

    def __init__(
        self,
        database: Database,
        files: FrameFiles,
        unrecorded: Callable[[Sequence[str]], Awaitable[object]],
        *,
        linger_s: float = 0.25,
        max_rows: int = 5000,
        patience_s: float = 15.0,
    ) -> None:
        self._database = database
        self._files = files
        self._unrecorded = unrecorded
        self._upsert_frame = _upsert_frame(database)
        self._upsert_ref = database.insert(FRAME_REFS).on_conflict_do_nothing()
        self._linger_s = linger_s
        self._max_rows = max_rows
        self._patience_s = patience_s
        self._logs: dict[DurableLog, None] = {}
        self._left_over: list[str] = []
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._counts = {"transactions": 0, "facts": 0, "frames": 0, "failed": 0, "retries": 0, "largest": 0}
        self.on_write: Callable[[float], None] = lambda seconds: None
        """Told how long a transaction took until it was durable or given up, in s."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="store-writer")

    def touch(self, log: DurableLog) -> None:
        if self._closing:
            log.fail(StoreError("the store is closed"))
            return
        self._logs[log] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self._wake.set)

    def hurry(self) -> None:
        self._wake.set()

    async def close(self) -> None:
        """Write what waits, then end the task."""
        self._closing = True
        self._wake.set()
        await self._task
        if self._timer is not None:
            self._timer.cancel()

    def statistics(self) -> dict[str, int]:
        """``transactions``, ``facts`` and ``frames`` written, sessions' shares ``failed``, ``retries``, the
        ``largest`` transaction in facts, and ``waiting`` logs."""
        return {**self._counts, "waiting": len(self._logs)}

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if parts := self._collect():
                begun = self._loop.time()
                await self._write(parts)
                self.on_write(self._loop.time() - begun)
            await self._remove_left_over()
            if self._closing:
                if not self._logs:
                    return
                self._wake.set()

    def _collect(self) -> list[_Part]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        parts: list[_Part] = []
        room = self._max_rows
        for log in list(self._logs):
            self._left_over += log.take_left_over()
            frames, rows = log.take_frames(), log.take(room)
            room -= len(rows)
            if rows or frames:
                parts.append(_Part(log, rows, frames))
            if log.has_rows:
                self._wake.set()  # the rest rides the next transaction
                break
            del self._logs[log]
        return sorted(parts, key=lambda part: part.session)  # one order everywhere: no deadlock

    async def _write(self, parts: Sequence[_Part], uncertain: bool = False) -> None:
        """Write ``parts``, patiently; each ends in success or failure.

        :param uncertain: an earlier try broke off, so the rows may be there already
        """
        give_up = self._loop.time() + self._patience_s
        pauses = iter(_PAUSES_S)
        while True:
            try:
                await self._commit(parts)
            except Refused:
                await self._write_apart(parts, uncertain)
            except StoreError as error:
                pause = next(pauses, _PAUSES_S[-1])
                if self._loop.time() + pause < give_up:
                    uncertain = True
                    self._counts["retries"] += 1
                    await asyncio.sleep(pause)
                    continue
                self._fail(parts, error)
            except Exception as error:
                _log.exception("the store's writer met an error it does not know")
                self._fail(parts, StoreError(f"the store's writer failed: {error!r}"))
            else:
                await self._succeed(parts)
            return

    async def _succeed(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            try:
                for frame in part.frames:
                    # A deletion that ran before the record was there may have taken the file; now it is safe.
                    if not self._files.exists(frame.file):
                        await self._files.write_again(frame.file, frame.data)
            except StoreError as error:
                self._fail([part], error)
            else:
                part.succeed()

    async def _remove_left_over(self) -> None:
        files, self._left_over = self._left_over, []
        if files:
            try:
                await self._unrecorded(files)
            except StoreError as error:  # the sweep finds them
                _log.warning("files of frames that were not recorded stay for now: %s", error)

    async def _write_apart(self, parts: Sequence[_Part], uncertain: bool) -> None:
        if len(parts) > 1:
            for part in parts:
                await self._write([part], uncertain)
            return
        part = parts[0]
        try:
            if uncertain and part.facts and await self._database.read(partial(_has_row, part.facts[-1])):
                await self._succeed(parts)
                return
            why = await self._database.read(partial(_why_refused, part.session, part.fence))
            if part.frames:  # before anybody learns that there is nothing
                self._left_over += [frame.file for frame in part.frames]
                await self._remove_left_over()
            self._fail(parts, why)
        except StoreError as error:
            self._fail(parts, error)

    async def _commit(self, parts: Sequence[_Part]) -> None:
        facts = [row for part in parts for row in part.facts]
        frames = sorted(
            (frame for part in parts for frame in part.frames), key=lambda frame: (frame.tenant, frame.uuid)
        )

        frame_rows, refs = [_frame_row(frame) for frame in frames], [_ref_row(frame) for frame in frames]

        fences = [(part.session, part.fence) for part in parts if part.fence is not None]

        def work(connection: Connection) -> None:
            if fences and lost_fences(connection, fences):
                raise Refused("a lease was lost")
            if self._database.is_sqlite:
                write_batch(connection, frame_rows, refs, facts)
                return
            if frames:
                connection.execute(self._upsert_frame, frame_rows)
                connection.execute(self._upsert_ref, refs)
            if facts:
                connection.execute(_INSERT_FACTS, facts)

        await self._database.write(
            work, shared=FRAMES_LOCK if frames else None, alone=self._database.is_sqlite
        )
        self._counts["transactions"] += 1
        self._counts["facts"] += len(facts)
        self._counts["frames"] += len(frames)
        self._counts["largest"] = max(self._counts["largest"], len(facts))

    def _fail(self, parts: Sequence[_Part], error: StoreError) -> None:
        self._counts["failed"] += len(parts)
        for part in parts:
            part.fail(error)


def _has_row(row: Row, connection: Connection) -> bool:
    same = [FACTS.c[name] == value for name, value in row.items()]
    return bool(connection.scalar(select(exists().where(*same))))


def _why_refused(session: str, fence: int | None, connection: Connection) -> StoreError:
    there = exists().where(SESSIONS.c.id == session, SESSIONS.c.deleted_ms.is_(None))
    if connection.scalar(select(there)):
        if fence is not None and lost_fences(connection, [(session, fence)]):
            return LeaseLost(f"session {session} has been taken over by another process")
        return LogConflict(f"another process writes session {session}: open it again or leave it alone")
    return SessionGone(f"session {session} was deleted")


def _frame_row(frame: FrameWrite) -> dict[str, Any]:
    return {
        "tenant": frame.tenant,
        "uuid": frame.uuid,
        "file": frame.file,
        "size": len(frame.data),
        "expires_ms": frame.expires_ms,
    }


def _ref_row(frame: FrameWrite) -> dict[str, Any]:
    return {"session": frame.session, "tenant": frame.tenant, "uuid": frame.uuid}


def _upsert_frame(database: Database) -> Any:
    """Insert; a frame that is there already lives as long as its latest use asks for."""
    statement = database.insert(FRAMES)
    asked = statement.excluded.expires_ms
    latest = case((or_(asked.is_(None), asked > FRAMES.c.expires_ms), asked), else_=FRAMES.c.expires_ms)
    return statement.on_conflict_do_update(
        index_elements=[FRAMES.c.tenant, FRAMES.c.uuid], set_={"expires_ms": latest}
    )
