"""One session in the store: its log, its frames and the few fields that are not facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, Select, Update, func, select, update

from memory.store.database import Database, Refused
from memory.store.errors import LeaseLost, SessionGone, StoreError
from memory.store.frames import SessionFrames
from memory.store.leases import Leases, lost_fences
from memory.store.log import DurableLog
from memory.store.packs import keep_pack
from memory.store.schema import FACTS, SESSIONS, SNAPSHOTS


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session's record. Times are Unix milliseconds.

    :param pack_digest: prompt pack it was created with; later packs are in the log
    :param updated_ms: time of the newest fact, or of the creation
    :param last_seq: the newest durable fact, 0 for none
    :param retention_ms: how long memory stays after ``updated_ms``; ``None``: until deleted
    """

    id: str
    tenant: str
    alias: str | None
    model: str
    pack_digest: str
    renderer: int
    created_ms: int
    updated_ms: int
    closed_ms: int | None
    retention_ms: int | None
    last_seq: int

    def public(self) -> dict[str, Any]:
        """Plain data for people."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Folded state as of ``seq``: a cache of the log, never newer than what is durable of it."""

    seq: int
    data: Mapping[str, Any]


class DurableSession:
    """An open session. One object for each session and process: the log has one writer.

    ``log`` is the ``SessionLog``, ``frames`` the ``FrameStore`` of the session's tenant.
    """

    def __init__(
        self,
        info: SessionInfo,
        log: DurableLog,
        frames: SessionFrames,
        *,
        database: Database,
        now_ms: Callable[[], int],
        release: Callable[[DurableSession], None],
        leases: Leases | None = None,
    ) -> None:
        self.id = info.id
        self.tenant = info.tenant
        self.log = log
        self.frames = frames
        self._database = database
        self._now_ms = now_ms
        self._release = release
        self._leases = leases

    async def info(self) -> SessionInfo:
        """The record as it is now. Raises ``SessionGone``."""
        return await load_info(self._database, self.id)

    async def close(self) -> None:
        """Record that the live session is over. Memory stays for its retention; the alias is free again."""
        await self.log.flush()
        change = self._update().values(closed_ms=func.coalesce(SESSIONS.c.closed_ms, self._now_ms()))
        fence = self.log.fence

        def work(connection: Connection) -> int:
            found = connection.execute(change).rowcount
            if fence is not None and found and lost_fences(connection, [(self.id, fence)]):
                raise LeaseLost(f"session {self.id} goes on in another process")
            return found

        if not await self._database.write(work):
            raise self._gone()

    async def save_snapshot(self, name: str, seq: int, data: Mapping[str, Any]) -> None:
        """Keep folded state as of ``seq`` under ``name``, in place of the one before."""
        await self.log.flush()
        await save_snapshot(self._database, self.id, name, seq, data)

    async def snapshot(self, name: str) -> Snapshot | None:
        """The newest snapshot of that name."""
        query = select(SNAPSHOTS.c.seq, SNAPSHOTS.c.data)
        query = query.where(SNAPSHOTS.c.session == self.id, SNAPSHOTS.c.name == name)
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else Snapshot(row.seq, orjson.loads(row.data))

    async def keep_pack(self, digest: str, source: str) -> None:
        """Keep a prompt pack that this session names, as long as the session. Raises ``SessionGone``."""
        await keep_pack(self._database, self.id, digest, source)

    async def release(self) -> None:
        """Flush and let go of the session and of its lease; it stays as it is. The object is of no use
        afterwards."""
        try:
            await self.log.flush()
        finally:
            self.log.fail(StoreError(f"session {self.id} was released"))
            self._release(self)
            if self._leases is not None and self.log.fence is not None:
                await self._leases.release(self.id, self.log.fence)

    def _update(self) -> Update:
        return update(SESSIONS).where(SESSIONS.c.id == self.id, SESSIONS.c.deleted_ms.is_(None))

    def _gone(self) -> SessionGone:
        return SessionGone(f"session {self.id} was deleted")


async def save_snapshot(
    database: Database, session: str, name: str, seq: int, data: Mapping[str, Any]
) -> None:
    """Write a snapshot in place of the one of that name. Raises ``SessionGone``."""
    row = {"session": session, "name": name, "seq": seq, "data": orjson.dumps(data).decode()}
    insert = database.insert(SNAPSHOTS).values(row)
    upsert = insert.on_conflict_do_update(
        index_elements=[SNAPSHOTS.c.session, SNAPSHOTS.c.name],
        set_={"seq": insert.excluded.seq, "data": insert.excluded.data},
    )
    try:
        await database.write(lambda connection: connection.execute(upsert).rowcount)
    except Refused:
        raise SessionGone(f"session {session} was deleted") from None


def select_info() -> Select[Any]:
    """Rows of ``SessionInfo`` of all sessions that are not being deleted."""
    newest = select(FACTS.c.at_ms, FACTS.c.seq).where(FACTS.c.session == SESSIONS.c.id)
    newest = newest.order_by(FACTS.c.seq.desc()).limit(1)
    columns = [column for column in SESSIONS.c if column.name != "deleted_ms"]
    last_ms = newest.with_only_columns(FACTS.c.at_ms).scalar_subquery()
    last_seq = newest.with_only_columns(FACTS.c.seq).scalar_subquery()
    return select(
        *columns,
        func.coalesce(last_ms, SESSIONS.c.created_ms).label("updated_ms"),
        func.coalesce(last_seq, 0).label("last_seq"),
    ).where(SESSIONS.c.deleted_ms.is_(None))


async def load_info(database: Database, session: str) -> SessionInfo:
    """One session's record. Raises ``SessionGone``."""
    found = await load_infos(database, select_info().where(SESSIONS.c.id == session))
    if not found:
        raise SessionGone(f"there is no session {session}")
    return found[0]


async def load_infos(database: Database, query: Select[Any]) -> list[SessionInfo]:
    """The records of a query made from ``select_info``."""
    return await database.read(
        lambda connection: [SessionInfo(**row) for row in connection.execute(query).mappings()]
    )
