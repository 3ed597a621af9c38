"""What leaves the store, when, and in which order: deletions, expiry, and what a crash left behind.

Deletions go in slices, so that live sessions never wait for one. A session is first marked, which hides
it for good, then emptied, then its row goes; a crash in between is finished by the next sweep.
Files are removed inside the transaction that removes their records and under the exclusive frames lock, so
a frame that some session records at the same time is never lost (see ``SessionFrames.put``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memory.store.database import FRAMES_LOCK, Database
from memory.store.errors import SessionGone
from memory.store.files import FrameFiles
from memory.store.schema import FACTS, FRAME_REFS, FRAMES, SESSIONS
from memory.store.transient import TransientFrames

_FRAMES_A_SLICE = 200
_FACTS_A_SLICE = 2000
_SESSIONS_A_SWEEP = 100
_FOLDERS = 256


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep removed: whole sessions, expired frames, files without a record."""

    sessions: int
    frames: int
    orphans: int


class Retention:
    """Deletes and expires. Times are Unix milliseconds, given by the caller.

    :param orphan_grace_ms: age before a file without a record is taken for a crash's left-over
    :param orphan_folders: first-level folders (of 256) that one sweep searches for such files
    """

    def __init__(
        self,
        database: Database,
        files: FrameFiles,
        cache: TransientFrames,
        *,
        orphan_grace_ms: int = 3_600_000,
        orphan_folders: int = 8,
    ) -> None:
        self._database = database
        self._files = files
        self._cache = cache
        self._orphan_grace_ms = orphan_grace_ms
        self._orphan_folders = orphan_folders
        self._next_folder = 0

    async def delete(self, session: str, now_ms: int) -> None:
        """Remove a session with its log, and its frames unless another session refers to them.

        :raises SessionGone: no such session (a deletion that a crash cut short may be asked again)
        """
        mark = update(SESSIONS).where(SESSIONS.c.id == session)
        mark = mark.values(deleted_ms=func.coalesce(SESSIONS.c.deleted_ms, now_ms)).returning(
            SESSIONS.c.tenant
        )
        async with self._database.write() as connection:
            tenant = await connection.scalar(mark)
        if tenant is None:
            raise SessionGone(f"there is no session {session}")
        while await self._delete_facts(session):
            pass
        while await self._delete_frames(session, tenant):
            pass

    async def sweep(self, now_ms: int, keep: Collection[str]) -> Swept:
        """Remove what has outlived its retention; ``keep`` names sessions that are in use."""
        sessions = 0
        for session in await self._outlived(now_ms):
            if session not in keep:
                with suppress(SessionGone):  # someone else was faster
                    await self.delete(session, now_ms)
                    sessions += 1
        frames = 0
        while expired := await self._expire_frames(now_ms):
            frames += expired
        return Swept(sessions, frames, await self._remove_orphans(now_ms))

    async def remove_unrecorded(self, files: Sequence[str]) -> int:
        """Remove those files that no record names; returns how many."""
        async with self._database.write(exclusive=FRAMES_LOCK) as connection:
            recorded = set(await connection.scalars(select(FRAMES.c.file).where(FRAMES.c.file.in_(files))))
            return await self._remove_files([file for file in files if file not in recorded])

    async def _outlived(self, now_ms: int) -> Sequence[str]:
        last_fact = (
            select(FACTS.c.at_ms)
            .where(FACTS.c.session == SESSIONS.c.id)
            .order_by(FACTS.c.seq.desc())
            .limit(1)
            .scalar_subquery()
        )
        last_sign = func.coalesce(last_fact, SESSIONS.c.created_ms)
        resumable = func.coalesce(SESSIONS.c.resume_until_ms, 0)
        outlived = and_(last_sign + SESSIONS.c.retention_ms <= now_ms, resumable <= now_ms)
        query = select(SESSIONS.c.id).where(or_(SESSIONS.c.deleted_ms.is_not(None), outlived))
        async with self._database.read() as connection:
            return (await connection.scalars(query.limit(_SESSIONS_A_SWEEP))).all()

    async def _delete_facts(self, session: str) -> bool:
        """One slice; False when none is left."""
        first = select(func.min(FACTS.c.seq)).where(FACTS.c.session == session).scalar_subquery()
        slice_ = delete(FACTS).where(FACTS.c.session == session, FACTS.c.seq < first + _FACTS_A_SLICE)
        async with self._database.write() as connection:
            return bool((await connection.execute(slice_)).rowcount)

    async def _delete_frames(self, session: str, tenant: str) -> bool:
        """One slice of references and of the frames they were the last to hold; then the session's row."""
        async with self._database.write(exclusive=FRAMES_LOCK) as connection:
            refs = select(FRAME_REFS.c.uuid).where(FRAME_REFS.c.session == session).limit(_FRAMES_A_SLICE)
            uuids = (await connection.scalars(refs)).all()
            if not uuids:
                await connection.execute(delete(SESSIONS).where(SESSIONS.c.id == session))
                return False
            await connection.execute(
                delete(FRAME_REFS).where(FRAME_REFS.c.session == session, FRAME_REFS.c.uuid.in_(uuids))
            )
            held = exists().where(FRAME_REFS.c.tenant == FRAMES.c.tenant, FRAME_REFS.c.uuid == FRAMES.c.uuid)
            await self._drop(connection, tenant, uuids, ~held)
            return True

    async def _expire_frames(self, now_ms: int) -> int:
        """One slice, of one tenant; 0 when nothing has expired."""
        expired = FRAMES.c.expires_ms <= now_ms
        async with self._database.read() as connection:
            tenant = await connection.scalar(select(FRAMES.c.tenant).where(expired).limit(1))
        if tenant is None:
            return 0
        async with self._database.write(exclusive=FRAMES_LOCK) as connection:
            query = select(FRAMES.c.uuid).where(FRAMES.c.tenant == tenant, expired).limit(_FRAMES_A_SLICE)
            uuids = (await connection.scalars(query)).all()
            await self._drop(connection, tenant, uuids, expired)
            return len(uuids)

    async def _drop(
        self, connection: AsyncConnection, tenant: str, uuids: Sequence[str], condition: ColumnElement[bool]
    ) -> None:
        statement = delete(FRAMES).where(FRAMES.c.tenant == tenant, FRAMES.c.uuid.in_(uuids), condition)
        await self._remove_files((await connection.scalars(statement.returning(FRAMES.c.file))).all())

    async def _remove_orphans(self, now_ms: int) -> int:
        removed = 0
        for _ in range(self._orphan_folders):
            folder, self._next_folder = self._next_folder, (self._next_folder + 1) % _FOLDERS
            frames, left_over = await self._files.scan(folder, now_ms - self._orphan_grace_ms)
            removed += await self._files.remove_left_over(left_over)
            for start in range(0, len(frames), _FRAMES_A_SLICE):
                removed += await self.remove_unrecorded(frames[start : start + _FRAMES_A_SLICE])
        return removed

    async def _remove_files(self, files: Sequence[str]) -> int:
        for file in files:
            self._cache.forget(file)
        await self._files.remove(files)
        return len(files)
