"""Which process owns a session, where several share a PostgreSQL database.

A process lives as long as its heartbeat moves its row on; all its leases live with it, so a heartbeat is one
row however many sessions there are. Times are the database's, so machines' clocks don't matter. Each owner of
a session has a fence of its own, one higher than the owner's before: what is written under an older one is
refused (``lost_fences``), so a process that slept through its life can't add to a session that went on
elsewhere. A living owner is never robbed, one that is dead is robbed by whoever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    cast,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import BigInteger

from memory.store.database import Database
from memory.store.errors import OwnedElsewhere, SessionGone, StoreError
from memory.store.schema import LEASES, PROCESSES, SESSIONS

_NOW_MS = cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
_FORGET_AFTER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Process:
    """:param id: of this run of the process
    :param address: where other processes reach it: the root of its API
    :param life_s: how long it is taken for alive after a heartbeat
    """

    id: str
    address: str
    life_s: float


@dataclass(frozen=True, slots=True)
class Owner:
    """Of a session; ``left_ms``: until it is taken for dead, 0 or less: it is."""

    id: str
    address: str
    left_ms: int

    @property
    def lives(self) -> bool:
        return self.left_ms > 0


@dataclass(frozen=True, slots=True)
class Held:
    """What a heartbeat shows.

    :param fences: that this process has, by session
    :param beside: open sessions of other processes that live
    """

    fences: dict[str, int]
    beside: int


class Leases:
    """The leases of one process. All methods raise ``StoreError``."""

    def __init__(self, database: Database, process: Process) -> None:
        if database.is_sqlite:
            raise StoreError("several processes need PostgreSQL: an SQLite file has one machine's processes")
        self._database = database
        self.process = process

    async def join(self) -> None:
        """Be known. Who was known at this address before is dead: two can't listen there."""
        me = self.process

        def work(connection: Connection) -> None:
            connection.execute(
                delete(PROCESSES).where(
                    (PROCESSES.c.address == me.address) | (PROCESSES.c.until_ms < _NOW_MS - _FORGET_AFTER_MS)
                )
            )
            _live_on(connection, me)

        await self._database.write(work)

    async def beat(self) -> Held:
        """Live on."""
        me = self.process
        held = select(LEASES.c.session, LEASES.c.fence).where(LEASES.c.owner == me.id)
        others = select(func.count()).select_from(LEASES).join(PROCESSES, PROCESSES.c.id == LEASES.c.owner)
        others = others.join(SESSIONS, SESSIONS.c.id == LEASES.c.session).where(
            PROCESSES.c.id != me.id,
            PROCESSES.c.until_ms > _NOW_MS,
            SESSIONS.c.closed_ms.is_(None),
            SESSIONS.c.deleted_ms.is_(None),
        )

        def work(connection: Connection) -> Held:
            _live_on(connection, me)
            fences = {row.session: row.fence for row in connection.execute(held)}
            return Held(fences, connection.scalar(others) or 0)

        return await self._database.beat(work, me.life_s)

    async def claim(self, session: str) -> int:
        """Become the owner of a session that goes on; returns the fence.

        It counts as a heartbeat: a process that was late with its own would else be robbed of the session
        before it can be told so.

        :raises OwnedElsewhere: another process that lives owns it
        :raises SessionGone: it is over, or deleted
        """
        me = self.process.id
        open_ = select(SESSIONS.c.id).where(
            SESSIONS.c.id == session, SESSIONS.c.closed_ms.is_(None), SESSIONS.c.deleted_ms.is_(None)
        )
        first = self._database.insert(LEASES).values(session=session, owner=None, fence=0)
        first = first.on_conflict_do_nothing()
        current = select(LEASES.c.owner, LEASES.c.fence).where(LEASES.c.session == session)

        def work(connection: Connection) -> int:
            # The session's row is locked before the lease's everywhere: no deadlock.
            if connection.scalar(open_.with_for_update(key_share=True)) is None:
                raise SessionGone(f"session {session} is over")
            connection.execute(first)
            row = connection.execute(current.with_for_update()).one()
            if row.owner == me:
                _live_on(connection, self.process)
                return int(row.fence)
            owner = connection.execute(_process(row.owner)).one_or_none() if row.owner else None
            if owner is not None and owner.left_ms > 0:
                raise OwnedElsewhere(session, owner.address)
            fence = int(row.fence) + 1
            connection.execute(
                update(LEASES).where(LEASES.c.session == session).values(owner=me, fence=fence)
            )
            _live_on(connection, self.process)
            return fence

        return await self._database.write(work)

    async def release(self, session: str, fence: int) -> None:
        """Let go: any process may have the session at once. Nothing happens if it was lost before."""
        mine = and_(LEASES.c.session == session, LEASES.c.owner == self.process.id, LEASES.c.fence == fence)
        change = update(LEASES).where(mine).values(owner=None)
        await self._database.write(lambda connection: connection.execute(change).rowcount)

    async def owner(self, session: str) -> Owner | None:
        """Who owns it, alive or dead; ``None``: nobody."""
        query = select(PROCESSES.c.id, PROCESSES.c.address, _left().label("left_ms"))
        query = query.join(LEASES, LEASES.c.owner == PROCESSES.c.id).where(LEASES.c.session == session)
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else Owner(row.id, row.address, row.left_ms)

    async def processes(self) -> list[Owner]:
        """Those that live."""
        return await living(self._database)

    async def leave(self) -> None:
        """Be forgotten: what is still owned can be taken at once."""
        gone = delete(PROCESSES).where(PROCESSES.c.id == self.process.id)
        await self._database.write(lambda connection: connection.execute(gone).rowcount)


async def living(database: Database) -> list[Owner]:
    """The processes that share a database and live; none of an SQLite file."""
    if database.is_sqlite:
        return []
    query = select(PROCESSES.c.id, PROCESSES.c.address, _left().label("left_ms"))
    query = query.where(PROCESSES.c.until_ms > _NOW_MS).order_by(PROCESSES.c.address)
    rows = await database.read(lambda connection: connection.execute(query).all())
    return [Owner(row.id, row.address, row.left_ms) for row in rows]


def first_lease(connection: Connection, session: str, process: Process) -> None:
    """The lease of a session that is made in this transaction; its fence is 1. Counts as a claim does."""
    connection.execute(insert(LEASES).values(session=session, owner=process.id, fence=1))
    _live_on(connection, process)


def lost_fences(connection: Connection, fences: Sequence[tuple[str, int]]) -> bool:
    """Whether any of these leases was lost; those that were not stay until the transaction ends."""
    query = select(LEASES.c.session, LEASES.c.fence).where(
        tuple_(LEASES.c.session, LEASES.c.fence).in_(fences), LEASES.c.owner.is_not(None)
    )
    found = connection.execute(query.order_by(LEASES.c.session).with_for_update(read=True)).all()
    return not set(fences) <= {(row.session, row.fence) for row in found}


def _live_on(connection: Connection, process: Process) -> None:
    """From now on for a whole life."""
    until_ms = _NOW_MS + round(process.life_s * 1000)
    new = postgresql.insert(PROCESSES).values(id=process.id, address=process.address, until_ms=until_ms)
    connection.execute(
        new.on_conflict_do_update(index_elements=[PROCESSES.c.id], set_={"until_ms": new.excluded.until_ms})
    )


def _process(owner: str) -> Select[tuple[str, int]]:
    return select(PROCESSES.c.address, _left().label("left_ms")).where(PROCESSES.c.id == owner)


def _left() -> ColumnElement[int]:
    return PROCESSES.c.until_ms - _NOW_MS
