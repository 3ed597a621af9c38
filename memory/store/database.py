"""One way to reach SQLite and PostgreSQL: short transactions, deadlines, typed errors, migrations.

Migrations are plain SQL files with a version table instead of a migration framework: the history is
one line of small steps, both databases run DDL in transactions, and no configuration is needed to open
a store.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import Connection, Table, event, func, insert, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from memory.store.errors import SchemaTooNew, StoreError
from memory.store.schema import SCHEMA_VERSION

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
FRAMES_LOCK = "frames"
"""Held shared while frames are recorded, exclusively while frames are removed."""

_SCHEMA_LOCK = "schema"
_BUSY_TIMEOUT_MS = 5000


class Refused(Exception):
    """A constraint said no (duplicate or dangling key); the caller knows what it means."""


class Database:
    """An engine and its rules. ``read`` and ``write`` give one transaction each.

    On SQLite (WAL, ``synchronous=NORMAL``) a commit survives the death of the process, not of the
    machine; on PostgreSQL both. Writers of this process queue up here instead of polling SQLite's lock.

    :param timeout_s: deadline of one transaction
    """

    def __init__(self, engine: AsyncEngine, timeout_s: float) -> None:
        self._engine = engine
        self._writing = engine.execution_options(begin="BEGIN IMMEDIATE")
        self._timeout_s = timeout_s
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._turn = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, url: str, timeout_s: float = 20.0) -> Database:
        """Connect and bring the schema up to date.

        :param url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``postgresql://user@host/name``
        :raises StoreError: unreachable, unsupported, or (``SchemaTooNew``) written by a newer Vigil
        """
        parsed = _with_driver(url)
        if parsed.get_backend_name() == "sqlite":
            engine = create_async_engine(parsed)
            _configure_sqlite(engine)
        else:
            # pre-ping: after a restart of the server the next transaction finds a fresh connection.
            engine = create_async_engine(parsed, pool_pre_ping=True, connect_args={"timeout": timeout_s})
        database = cls(engine, timeout_s)
        try:
            await database._migrate()
        except BaseException:
            await engine.dispose()
            raise
        return database

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """``INSERT`` of the database at hand, with its ``ON CONFLICT`` clauses."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    async def close(self) -> None:
        """Drop every connection; later transactions are refused."""
        self._closed = True
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads. Raises ``StoreError``."""
        self._raise_if_closed()
        with _typed_errors():
            async with asyncio.timeout(self._timeout_s), self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def write(
        self, *, exclusive: str | None = None, shared: str | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes; committed when the block ends, rolled back when it raises.

        :param exclusive: a lock that excludes every ``shared`` and ``exclusive`` holder of that name
        :param shared: a lock held together with other ``shared`` holders
        :raises StoreError: not committed, or not known to be
        :raises Refused: a constraint was violated; nothing was written
        """
        self._raise_if_closed()
        with _typed_errors():
            async with (
                asyncio.timeout(self._timeout_s),
                self._turn if self.is_sqlite else nullcontext(),
                self._writing.begin() as connection,
            ):
                if not self.is_sqlite:  # SQLite has one writer at a time: every lock is held already
                    await _lock(connection, exclusive, shared)
                yield connection

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    async def _migrate(self) -> None:
        steps = _migrations()
        async with self.write(exclusive=_SCHEMA_LOCK) as connection:
            if not await connection.run_sync(_has_version_table):
                await connection.run_sync(SCHEMA_VERSION.create)
            version = await connection.scalar(select(func.max(SCHEMA_VERSION.c.version))) or 0
            if version > len(steps):
                raise SchemaTooNew(
                    f"the database has schema {version}, this Vigil knows {len(steps)}: update it"
                )
            for number, statements in enumerate(steps[version:], start=version + 1):
                for statement in statements:
                    await connection.execute(text(statement))
                await connection.execute(insert(SCHEMA_VERSION).values(version=number))


def _with_driver(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS[parsed.get_backend_name()])
    except (SQLAlchemyError, KeyError):
        raise StoreError("the store's URL must start with sqlite:/// or postgresql://") from None
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise StoreError("a store in memory is not durable: give the SQLite URL a file")
        file = Path(str(parsed.database))
        if file.is_dir():
            raise StoreError(f"{file} is a folder: give the SQLite URL a file")
        file.parent.mkdir(parents=True, exist_ok=True)
    return parsed


def _configure_sqlite(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def _connect(dbapi_connection: Any, _record: Any) -> None:
        # The driver must not begin transactions on its own: "begin" below chooses the kind.
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            "secure_delete=ON",  # what is deleted must not stay in free pages
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


@contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise Refused(str(error.orig)) from error
    except (
        SQLAlchemyError,
        sqlite3.Error,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        OSError,
        TimeoutError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"the store did not do it: {reason}") from error


async def _lock(connection: AsyncConnection, exclusive: str | None, shared: str | None) -> None:
    if exclusive is not None:
        await connection.execute(select(func.pg_advisory_xact_lock(_lock_key(exclusive))))
    if shared is not None:
        await connection.execute(select(func.pg_advisory_xact_lock_shared(_lock_key(shared))))


def _lock_key(name: str) -> int:
    digest = hashlib.sha256(b"vigil:" + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _has_version_table(connection: Connection) -> bool:
    return bool(inspect(connection).has_table(SCHEMA_VERSION.name))


def _migrations() -> list[list[str]]:
    """Every step's statements; step N is the file that starts with N in four digits."""
    folder = resources.files("memory.store.migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    steps = []
    for number, name in enumerate(names, start=1):
        if int(name[:4]) != number:
            raise StoreError(f"the migration {name} is out of order: expected number {number:04d}")
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        sql = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
        steps.append([part.strip() for part in sql.split(";") if part.strip()])
    return steps
