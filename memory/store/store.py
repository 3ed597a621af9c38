"""``Store``: everything durable of a Vigil service, in SQLite or PostgreSQL and a folder of frames."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select, tuple_

from memory.store.base import Entry
from memory.store.database import Database, Refused
from memory.store.errors import LeaseLost, SessionExists, SessionGone, StoreError
from memory.store.export import export_tar
from memory.store.files import FrameFiles
from memory.store.frames import SessionFrames
from memory.store.leases import Leases, Owner, Process, first_lease, living
from memory.store.log import DurableLog
from memory.store.packs import packs_of
from memory.store.retention import Retention, Swept
from memory.store.schema import SESSIONS, SNAPSHOTS, TENANT_KEYS
from memory.store.session import (
    DurableSession,
    SessionInfo,
    load_info,
    load_infos,
    save_snapshot,
    select_info,
)
from memory.store.transient import TransientFrames
from memory.store.writer import GroupWriter

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things stay, in milliseconds; ``None``: until they are deleted.

    :param session_ms: a new session's memory, after its last fact
    :param frame_ms: a frame, after it was last seen; must exceed the longest window, or a live prompt
        could lose an image
    """

    session_ms: int | None = 30 * DAY_MS
    frame_ms: int | None = DAY_MS


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """A tenant's secrets: the same bytes get other names at another tenant."""

    frame_key: bytes
    salt_key: bytes

    def cache_salt(self) -> str:
        """The engine's ``cache_salt`` for this tenant: 64 hex digits."""
        return hmac.new(self.salt_key, b"", hashlib.sha256).hexdigest()


class Store:
    """The durable store. Use ``open``; ``close`` writes what waits.

    All failures are ``StoreError`` or one of its children.
    """

    def __init__(
        self,
        database: Database,
        files: FrameFiles,
        keeping: Keeping,
        now_ms: Callable[[], int],
        cache_bytes: int,
        leases: Leases | None = None,
    ) -> None:
        self._database = database
        self._files = files
        self._keeping = keeping
        self._now_ms = now_ms
        self._cache = TransientFrames(cache_bytes)
        self._retention = Retention(database, files, self._cache)
        self._writer = GroupWriter(database, files, self._retention.remove_unrecorded)
        self._open: dict[str, DurableSession] = {}
        self._opening = asyncio.Lock()
        self.leases = leases
        """Where several processes share the database."""
        self._fences: dict[str, int] = {}

    @classmethod
    async def open(
        cls,
        url: str,
        data_dir: Path,
        *,
        now_ms: Callable[[], int],
        keeping: Keeping | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        process: Process | None = None,
    ) -> Store:
        """Connect, bring the schema up to date, start the writer.

        :param url: ``sqlite:///file.db`` or ``postgresql://user:password@host/database``
        :param data_dir: folder of frame bytes; processes that share a database share this folder too
        :param now_ms: Unix time in milliseconds
        :param cache_bytes: newest frames kept in memory too
        :param process: this one, where several share the database: a session is one process's at a time
        """
        files = FrameFiles(data_dir / "frames")
        database = await Database.open(url)
        try:
            leases = Leases(database, process) if process else None
            if leases is not None:
                await leases.join()
        except BaseException:
            await database.close()
            raise
        return cls(database, files, keeping or Keeping(), now_ms, cache_bytes, leases)

    async def sharers(self) -> list[Owner]:
        """The processes that have leases here and live, this one among them if it has."""
        return await living(self._database)

    async def close(self) -> None:
        """Write what waits and let go of everything."""
        await self._writer.close()
        if self.leases is not None:
            with suppress(StoreError):  # else it is dead when its life is over
                await self.leases.leave()
        await self._database.close()
        await self._files.close()

    async def create(
        self,
        session_id: str,
        *,
        tenant: str,
        model: str,
        pack_digest: str,
        renderer: int,
        alias: str | None = None,
    ) -> DurableSession:
        """Record a new session and open it. Raises ``SessionExists`` for a taken id or live alias."""
        row = {
            "id": session_id,
            "tenant": tenant,
            "alias": alias,
            "model": model,
            "pack_digest": pack_digest,
            "renderer": renderer,
            "created_ms": self._now_ms(),
            "retention_ms": self._keeping.session_ms,
        }
        try:
            new = insert(SESSIONS).values(row)
            process = self.leases.process if self.leases else None

            def work(connection: Connection) -> None:
                connection.execute(new)
                if process is not None:
                    first_lease(connection, session_id, process)

            await self._database.write(work)
        except Refused:
            raise SessionExists(f"session {session_id} (alias {alias}) exists already") from None
        if self.leases is not None:
            self._fences[session_id] = 1
        return await self.session(session_id)

    async def claim(self, session_id: str) -> None:
        """Own a session that is not open here, where there are leases; see ``Leases.claim``."""
        if self.leases is not None:
            self._fences[session_id] = await self.leases.claim(session_id)

    @property
    def held(self) -> dict[str, int]:
        """The fences of the sessions that are open here and work."""
        return {
            name: session.log.fence
            for name, session in self._open.items()
            if session.log.fence is not None and session.log.error is None
        }

    async def session(self, session_id: str) -> DurableSession:
        """Open a session; the same object until it is released or its log fails. Raises ``SessionGone``."""
        async with self._opening:
            there = self._open.get(session_id)
            if there is not None and there.log.error is None:
                return there
            info = await load_info(self._database, session_id)
            session = self._assemble(info)
            self._open[session_id] = session
            return session

    def forsake(self, session_id: str) -> None:
        """Write nothing more of a session that another process may own by now: its log fails with
        ``LeaseLost``."""
        there = self._open.get(session_id)
        if there is not None:
            there.log.fail(LeaseLost(f"session {session_id} may go on in another process"))

    def is_open(self, session_id: str) -> bool:
        """The session is open in this process: facts may still be appended, also when its end is recorded."""
        return session_id in self._open

    async def info(self, session_id: str) -> SessionInfo:
        """A session's record, without opening it. Raises ``SessionGone``."""
        return await load_info(self._database, session_id)

    async def find(self, tenant: str, alias: str) -> SessionInfo | None:
        """The live session that a tenant calls by this alias."""
        query = select_info().where(
            SESSIONS.c.tenant == tenant, SESSIONS.c.alias == alias, SESSIONS.c.closed_ms.is_(None)
        )
        found = await load_infos(self._database, query)
        return found[0] if found else None

    async def sessions(self, tenant: str, limit: int = 50, after: str | None = None) -> list[SessionInfo]:
        """A tenant's sessions, newest first.

        :param after: id of the last session of the page before; raises ``SessionGone`` if unknown
        """
        query = select_info().where(SESSIONS.c.tenant == tenant)
        age = tuple_(SESSIONS.c.created_ms, SESSIONS.c.id)
        if after is not None:
            last = await load_info(self._database, after)
            query = query.where(age < (last.created_ms, last.id))
        query = query.order_by(SESSIONS.c.created_ms.desc(), SESSIONS.c.id.desc()).limit(limit)
        return await load_infos(self._database, query)

    async def entries(self, session_id: str, after: int = 0) -> AsyncIterator[list[Entry]]:
        """A session's facts with ``seq > after``, in pages: all that was appended before the call and is
        durable. Raises ``SessionGone``.
        """
        there = self._open.get(session_id)
        if there is not None:
            with suppress(StoreError):  # a log that failed has its durable part still
                await there.log.flush()
        info = await load_info(self._database, session_id)
        async for page in self._assemble(info).log.pages(after, info.last_seq):
            yield page

    async def packs(self, session_id: str) -> dict[str, str]:
        """The sources of the prompt packs that the session's log names, by digest."""
        return await packs_of(self._database, session_id)

    async def bookmark(self, session_id: str, name: str, seq: int) -> None:
        """Keep how far a reader of that name has come in a session's log. Raises ``SessionGone``."""
        await save_snapshot(self._database, session_id, name, seq, {})

    async def bookmarks(self, name: str, session_id: str | None = None) -> dict[str, int]:
        """How far the reader of that name has come, by session; of all sessions, or of one."""
        query = select(SNAPSHOTS.c.session, SNAPSHOTS.c.seq).where(SNAPSHOTS.c.name == name)
        if session_id is not None:
            query = query.where(SNAPSHOTS.c.session == session_id)
        return await self._database.read(
            lambda connection: {row.session: row.seq for row in connection.execute(query)}
        )

    async def export(self, session_id: str) -> AsyncIterator[bytes]:
        """The session as a tar, in pieces (format: ``memory.store.export``). Raises ``SessionGone``."""
        there = self._open.get(session_id)
        if there is not None:
            await there.log.flush()
        info = await load_info(self._database, session_id)
        log = self._assemble(info).log
        parts = export_tar(info.public(), log, info.last_seq, database=self._database, files=self._files)
        async for part in parts:
            yield part

    async def delete(self, session_id: str) -> None:
        """Remove a session, its log, and frames no other session holds. Raises ``SessionGone``.

        An open log fails first with ``SessionGone``: nothing is written to a session that goes.
        """
        self._fail_open(session_id)
        await self._retention.delete(session_id, self._now_ms())
        self._fail_open(session_id)  # opened again before the deletion was recorded

    async def sweep(self, now_ms: int) -> Swept:
        """Remove what has outlived its retention and finish interrupted deletions. Sessions that are open
        here are kept. Meant to be called every minute or so.
        """
        return await self._retention.sweep(now_ms, keep=self._open)

    async def keys(self, tenant: str) -> TenantKeys:
        """A tenant's keys, made at the first call and the same ever after."""
        fresh = {
            "tenant": tenant,
            "frame_key": secrets.token_hex(32),
            "salt_key": secrets.token_hex(32),
            "created_ms": self._now_ms(),
        }
        keep_old = self._database.insert(TENANT_KEYS).values(fresh).on_conflict_do_nothing()
        query = select(TENANT_KEYS.c.frame_key, TENANT_KEYS.c.salt_key).where(TENANT_KEYS.c.tenant == tenant)

        def work(connection: Connection) -> TenantKeys:
            connection.execute(keep_old)
            row = connection.execute(query).one()
            return TenantKeys(bytes.fromhex(row.frame_key), bytes.fromhex(row.salt_key))

        return await self._database.write(work)

    def observe_writes(self, told: Callable[[float], None]) -> None:
        """Call ``told`` with the seconds of each transaction of facts and frames, retries included."""
        self._writer.on_write = told

    def statistics(self) -> dict[str, Any]:
        """``open`` sessions, the ``writer``'s and the frame ``cache``'s figures."""
        return {
            "open": len(self._open),
            "writer": self._writer.statistics(),
            "cache": self._cache.statistics(),
        }

    def _assemble(self, info: SessionInfo) -> DurableSession:
        fence = self._fences.get(info.id)
        log = DurableLog(
            info.id,
            info.last_seq,
            database=self._database,
            writer=self._writer,
            now_ms=self._now_ms,
            fence=fence,
        )
        frames = SessionFrames(
            log,
            info.tenant,
            files=self._files,
            cache=self._cache,
            now_ms=self._now_ms,
            frame_retention_ms=self._keeping.frame_ms,
        )
        return DurableSession(
            info,
            log,
            frames,
            database=self._database,
            now_ms=self._now_ms,
            release=self._forget,
            leases=self.leases,
        )

    def _fail_open(self, session_id: str) -> None:
        there = self._open.pop(session_id, None)
        if there is not None:
            there.log.fail(SessionGone(f"session {session_id} was deleted"))

    def _forget(self, session: DurableSession) -> None:
        if self._open.get(session.id) is session:
            del self._open[session.id]
            self._fences.pop(session.id, None)
