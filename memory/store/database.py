"""One way to reach SQLite and PostgreSQL: short transactions, deadlines, typed errors, migrations.

Migrations are plain SQL files with a version table instead of a migration framework: the history is
one line of small steps, both databases run DDL in transactions, and no configuration is needed to open
a store.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event, func, insert, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from memory.store import batch
from memory.store.errors import SchemaTooNew, StoreError
from memory.store.schema import SCHEMA_VERSION

_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}
_READERS = 4
FRAMES_LOCK = "frames"
"""Held shared while frames or packs are recorded, exclusively while they are removed."""

_SCHEMA_LOCK = "schema"
_BUSY_TIMEOUT_MS = 5000
_LOCKED_S = 0.01
"""Until a lock is asked for again."""
_CHECKPOINT_AFTER = 400
"""Transactions: some megabytes of the write-ahead log."""


_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Refused(Exception):
    """A constraint said no (duplicate or dangling key); the caller knows what it means."""


class Database:
    """An engine and its rules. ``read`` and ``write`` run one function in one transaction, in a thread.

    A transaction is one hop to a thread and back, whatever it executes: with a driver that hops for every
    statement a hundred sessions would spend most of a core on it. One thread writes, so writers of this
    process queue up here instead of polling SQLite's lock.

    On SQLite (WAL, ``synchronous=NORMAL``) a commit survives the death of the process, not of the
    machine; on PostgreSQL both.

    :param timeout_s: deadline of one transaction
    """

    def __init__(self, engine: Engine, timeout_s: float) -> None:
        self._engine = engine
        self._writing = engine.execution_options(begin="BEGIN IMMEDIATE")
        self._timeout_s = timeout_s
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="store-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-write")
        self._heart = ThreadPoolExecutor(1, thread_name_prefix="store-heart")
        self._alone: Connection | None = None  # of the writing thread
        self._closed = False
        self._since_checkpoint = 0

    @classmethod
    async def open(cls, url: str, timeout_s: float = 20.0) -> Database:
        """Connect and bring the schema up to date.

        :param url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``postgresql://user@host/name``
        :raises StoreError: unreachable, unsupported, or (``SchemaTooNew``) written by a newer Vigil
        """
        database = cls(_engine(url, timeout_s), timeout_s)
        try:
            await database.write(_migrate, exclusive=_SCHEMA_LOCK)
        except BaseException:
            await database.close()
            raise
        return database

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """``INSERT`` of the database at hand, with its ``ON CONFLICT`` clauses."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    async def close(self) -> None:
        """Finish what runs and drop every connection; later transactions are refused."""
        self._closed = True
        await asyncio.to_thread(self._heart.shutdown)
        await asyncio.to_thread(self._writer.shutdown)
        if self._alone is not None:
            self._alone.close()
        await asyncio.to_thread(self._readers.shutdown)
        await asyncio.to_thread(self._engine.dispose)

    async def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run ``work`` in a transaction that only reads. Raises ``StoreError``."""

        def transaction() -> Result:
            with self._engine.begin() as connection:
                return work(connection)

        return await self._run(self._readers, transaction)

    async def write(
        self,
        work: Callable[[Connection], Result],
        *,
        exclusive: str | None = None,
        shared: str | None = None,
        alone: bool = False,
    ) -> Result:
        """Run ``work`` in a transaction that writes: committed when it returns, rolled back when it raises.

        :param exclusive: a lock that excludes every ``shared`` and ``exclusive`` holder of that name
        :param shared: a lock held together with other ``shared`` holders
        :param alone: ``work`` gives SQLite's driver a single statement, a transaction by itself: what the
            engine does around one takes longer than a few rows, and the event loop waits for it
        :raises StoreError: not committed, or (deadline) not known to be
        :raises Refused: a constraint was violated; nothing was written
        """

        def transaction() -> Result:
            if alone:
                self._alone = self._alone or self._engine.connect()
                return work(self._alone)
            with self._writing.begin() as connection:
                if not self.is_sqlite:  # SQLite has one writer at a time: every lock is held already
                    _lock(connection, exclusive, shared)
                return work(connection)

        result = await self._run(self._writer, transaction)
        if self.is_sqlite:
            self._wrote()
        return result

    async def beat(self, work: Callable[[Connection], Result], timeout_s: float) -> Result:
        """Run ``work`` in a transaction that writes, beside those that wait for the writing thread: a
        heartbeat is of use only while it is young. Raises ``StoreError``."""

        def transaction() -> Result:
            with self._writing.begin() as connection:
                return work(connection)

        return await self._run(self._heart, transaction, timeout_s)

    def _wrote(self) -> None:
        """Move what was written from the log to the database now and then, beside the transactions.

        SQLite itself would do it within one, which with all behind it would wait for the disk. What came in
        meanwhile is little; it is moved by the writing thread, so that the log begins anew.
        """
        self._since_checkpoint += 1
        if self._since_checkpoint < _CHECKPOINT_AFTER or self._closed:
            return
        self._since_checkpoint = 0
        self._readers.submit(self._checkpoint).add_done_callback(self._checkpoint_rest)

    def _checkpoint_rest(self, _moved: Future[None]) -> None:
        with suppress(RuntimeError):  # it was closed meanwhile, which moves everything
            self._writer.submit(self._checkpoint)

    def _checkpoint(self) -> None:
        try:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                connection.close()
        except (SQLAlchemyError, sqlite3.Error) as error:  # the log grows until the next time
            _log.warning("the store's write-ahead log could not be moved: %s", error)

    async def _run(
        self, threads: ThreadPoolExecutor, transaction: Callable[[], Result], timeout_s: float | None = None
    ) -> Result:
        if self._closed:
            raise StoreError("the store is closed")
        with _typed_errors():
            async with asyncio.timeout(timeout_s or self._timeout_s):
                return await asyncio.get_running_loop().run_in_executor(threads, transaction)


def _engine(url: str, timeout_s: float) -> Engine:
    parsed = _with_driver(url)
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed)
        _configure_sqlite(engine)
        return engine
    milliseconds = int(timeout_s * 1000)
    return create_engine(
        parsed,
        pool_pre_ping=True,  # after a restart of the server the next transaction finds a fresh connection
        connect_args={
            "connect_timeout": max(1, int(timeout_s)),
            "tcp_user_timeout": milliseconds,
            "options": f"-c statement_timeout={milliseconds}",
        },
    )


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
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)  # it will hold the tenants' keys
        except OSError as error:
            raise StoreError(f"the database can't be made: {error}") from error
    return parsed


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _connect(dbapi_connection: Any, _record: Any) -> None:
        # The driver must not begin transactions on its own: "begin" below chooses the kind.
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        _write_ahead(cursor)
        for pragma in (
            "synchronous=NORMAL",
            "wal_autocheckpoint=0",  # see Database._checkpoint
            "foreign_keys=ON",
            "secure_delete=ON",  # what is deleted must not stay in free pages
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        for statement in batch.SETUP:
            cursor.execute(statement)
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # To the driver itself: a statement of the engine's would cost more than the transaction.
        statement = connection.get_execution_options().get("begin", "BEGIN")
        connection.connection.cursor().execute(statement)


def _write_ahead(cursor: Any) -> None:
    """Where two processes make one new database at once, one is refused this at once: SQLite waits for locks
    of transactions, not for this one."""
    until = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOCKED_S)


@contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise Refused(str(error.orig)) from error
    except sqlite3.IntegrityError as error:
        raise Refused(str(error)) from error
    except (SQLAlchemyError, sqlite3.Error, OSError, TimeoutError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"the store did not do it: {reason}") from error


def _lock(connection: Connection, exclusive: str | None, shared: str | None) -> None:
    if exclusive is not None:
        connection.execute(select(func.pg_advisory_xact_lock(_lock_key(exclusive))))
    if shared is not None:
        connection.execute(select(func.pg_advisory_xact_lock_shared(_lock_key(shared))))


def _lock_key(name: str) -> int:
    digest = hashlib.sha256(b"vigil:" + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _migrate(connection: Connection) -> None:
    steps = _migrations()
    if not inspect(connection).has_table(SCHEMA_VERSION.name):
        SCHEMA_VERSION.create(connection)
    version = connection.scalar(select(func.max(SCHEMA_VERSION.c.version))) or 0
    if version > len(steps):
        raise SchemaTooNew(f"the database has schema {version}, this Vigil knows {len(steps)}: update it")
    for number, statements in enumerate(steps[version:], start=version + 1):
        for statement in statements:
            connection.execute(text(statement))
        connection.execute(insert(SCHEMA_VERSION).values(version=number))


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
