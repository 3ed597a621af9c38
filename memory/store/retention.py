"""What leaves the store, when, and in which order: deletions, expiry, and what a crash left behind.

Deletions go in slices, so that live sessions never wait for one. A session is first marked, which hides
it for good, then emptied, then its row goes; a crash in between is finished by the next sweep.
Files are removed inside the transaction that removes their records and under the exclusive frames lock, so
a frame that some session records at the same time is never lost (see ``SessionFrames.put``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, delete, exists, func, or_, select, update

from memory.store.database import FRAMES_LOCK, Database
from memory.store.errors import SessionGone
from memory.store.files import FrameFiles
from memory.store.packs import drop_unused
from memory.store.schema import FACTS, FRAME_REFS, FRAMES, SESSIONS
from memory.store.transient import TransientFrames

Removed = TypeVar("Removed")

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
        tenant = await self._database.write(lambda connection: connection.scalar(mark))
        if tenant is None:
            raise SessionGone(f"there is no session {session}")
        while await self._database.write(partial(_delete_facts, session)):
            pass
        while (removed := await self._remove(partial(self._delete_frames, session, tenant))) is not None:
            self._forget(removed)

    async def sweep(self, now_ms: int, keep: Collection[str]) -> Swept:
        """Remove what has outlived its retention; ``keep`` names sessions that are in use."""
        sessions = 0
        for session in await self._database.read(partial(_outlived, now_ms)):
            if session not in keep:
                with suppress(SessionGone):  # someone else was faster
                    await self.delete(session, now_ms)
                    sessions += 1
        frames = 0
        while expired := await self._remove(partial(self._expire_frames, now_ms)):
            self._forget(expired)
            frames += len(expired)
        return Swept(sessions, frames, await self._remove_orphans(now_ms))

    async def remove_unrecorded(self, files: Sequence[str]) -> int:
        """Remove those files that no record names; returns how many."""
        removed = await self._remove(partial(self._unrecorded, files))
        self._forget(removed)
        return len(removed)

    async def _remove_orphans(self, now_ms: int) -> int:
        removed = 0
        for _ in range(self._orphan_folders):
            folder, self._next_folder = self._next_folder, (self._next_folder + 1) % _FOLDERS
            frames, left_over = await self._files.scan(folder, now_ms - self._orphan_grace_ms)
            removed += await self._files.remove_left_over(left_over)
            for start in range(0, len(frames), _FRAMES_A_SLICE):
                removed += await self.remove_unrecorded(frames[start : start + _FRAMES_A_SLICE])
        return removed

    async def _remove(self, work: Callable[[Connection], Removed]) -> Removed:
        return await self._database.write(work, exclusive=FRAMES_LOCK)

    def _forget(self, files: Iterable[str]) -> None:
        for file in files:
            self._cache.forget(file)

    # --- one transaction each, in the writer's thread; they return the files they removed --------------

    def _delete_frames(self, session: str, tenant: str, connection: Connection) -> Sequence[str] | None:
        """One slice of references and the frames they were the last to hold; then the session: ``None``."""
        refs = select(FRAME_REFS.c.uuid).where(FRAME_REFS.c.session == session).limit(_FRAMES_A_SLICE)
        uuids = connection.scalars(refs).all()
        if not uuids:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.id == session))
            drop_unused(connection)
            return None
        connection.execute(
            delete(FRAME_REFS).where(FRAME_REFS.c.session == session, FRAME_REFS.c.uuid.in_(uuids))
        )
        held = exists().where(FRAME_REFS.c.tenant == FRAMES.c.tenant, FRAME_REFS.c.uuid == FRAMES.c.uuid)
        return self._drop(connection, FRAMES.c.tenant == tenant, FRAMES.c.uuid.in_(uuids), ~held)

    def _expire_frames(self, now_ms: int, connection: Connection) -> Sequence[str]:
        """One slice of frames whose time is over, with all references to them."""
        query = select(FRAMES.c.file).where(FRAMES.c.expires_ms <= now_ms).limit(_FRAMES_A_SLICE)
        return self._drop(connection, FRAMES.c.file.in_(connection.scalars(query).all()))

    def _unrecorded(self, files: Sequence[str], connection: Connection) -> Sequence[str]:
        recorded = set(connection.scalars(select(FRAMES.c.file).where(FRAMES.c.file.in_(files))))
        removed = [file for file in files if file not in recorded]
        self._files.remove(removed)
        return removed

    def _drop(self, connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[str]:
        removed = connection.scalars(delete(FRAMES).where(*conditions).returning(FRAMES.c.file)).all()
        self._files.remove(removed)
        return removed


def _delete_facts(session: str, connection: Connection) -> int:
    """One slice; 0 when none is left."""
    first = select(func.min(FACTS.c.seq)).where(FACTS.c.session == session).scalar_subquery()
    slice_ = delete(FACTS).where(FACTS.c.session == session, FACTS.c.seq < first + _FACTS_A_SLICE)
    return connection.execute(slice_).rowcount


def _outlived(now_ms: int, connection: Connection) -> Sequence[str]:
    last_fact = select(FACTS.c.at_ms).where(FACTS.c.session == SESSIONS.c.id)
    last_fact = last_fact.order_by(FACTS.c.seq.desc()).limit(1)
    last_sign = func.coalesce(last_fact.scalar_subquery(), SESSIONS.c.created_ms)
    outlived = last_sign + SESSIONS.c.retention_ms <= now_ms
    query = select(SESSIONS.c.id).where(or_(SESSIONS.c.deleted_ms.is_not(None), outlived))
    return connection.scalars(query.limit(_SESSIONS_A_SWEEP)).all()
