"""Opening a database: migrations once and in order, typed refusals, SQLite's settings."""

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from memory.store.database import Database, Refused
from memory.store.errors import SchemaTooNew, StoreError
from memory.store.schema import METADATA
from tests.fakes.postgres import PrivatePostgres


def _columns(connection: Connection) -> dict[str, dict[str, tuple[str, bool]]]:
    inspector = inspect(connection)
    return {
        table: {
            column["name"]: (str(column["type"]), bool(column["nullable"]))
            for column in inspector.get_columns(table)
        }
        for table in inspector.get_table_names()
    }


def _described() -> dict[str, dict[str, tuple[str, bool]]]:
    return {
        name: {column.name: (str(column.type), bool(column.nullable)) for column in table.columns}
        for name, table in METADATA.tables.items()
    }


async def test_migrations_create_what_the_schema_describes(url: str) -> None:
    database = await Database.open(url)
    assert await database.read(_columns) == _described()
    await database.close()


async def test_two_processes_may_open_a_new_database_at_once(url: str) -> None:
    first, second = await asyncio.gather(Database.open(url), Database.open(url))
    versions = await second.read(lambda c: c.scalars(text("SELECT version FROM schema_version")).all())
    assert versions == list(range(1, len(versions) + 1))
    await first.close()
    await second.close()


async def test_a_newer_schema_is_refused_untouched(url: str) -> None:
    database = await Database.open(url)
    await database.write(lambda c: c.execute(text("INSERT INTO schema_version VALUES (999)")).rowcount)
    await database.close()
    with pytest.raises(SchemaTooNew) as error:
        await Database.open(url)
    assert error.value.code == "schema_too_new"


@pytest.mark.parametrize("url", ["mysql://host/db", "nonsense", "sqlite://", "sqlite:///:memory:"])
async def test_urls_that_cannot_be_durable_are_refused(url: str) -> None:
    with pytest.raises(StoreError):
        await Database.open(url)


async def test_an_unreachable_server_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await Database.open(f"postgresql://nobody@/none?host={tmp_path}")


async def test_a_folder_instead_of_a_file_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await Database.open(f"sqlite:///{tmp_path}")


async def test_sqlite_settings(tmp_path: Path) -> None:
    database = await Database.open(f"sqlite:///{tmp_path}/new/folder/v.db")

    def pragmas(connection: Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
        return {name: connection.scalar(text(f"PRAGMA {name}")) for name in names}

    assert await database.read(pragmas) == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "secure_delete": 1,
        "busy_timeout": 5000,
    }
    await database.close()


async def test_what_was_written_is_moved_out_of_sqlites_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.store.database._CHECKPOINT_AFTER", 10)
    database = await Database.open(f"sqlite:///{tmp_path}/v.db")
    statement = text("INSERT INTO tenant_keys VALUES (:tenant, :key, 'b', 1)")
    written = 0

    async def write() -> None:
        nonlocal written
        written += 1
        row = {"tenant": str(written), "key": "x" * 10_000}
        await database.write(lambda connection: connection.execute(statement, row).rowcount)

    async with asyncio.timeout(60):
        while (tmp_path / "v.db").stat().st_size < 500_000:
            await write()
        # The log begins anew when all of it was moved: it does not grow with what is written.
        while written * 10_000 < 10 * (tmp_path / "v.db-wal").stat().st_size:
            await write()
    await database.close()


KEYS = text("INSERT INTO tenant_keys VALUES ('t', 'a', 'b', 1)")


def count(connection: Connection) -> object:
    return connection.scalar(text("SELECT count(*) FROM tenant_keys"))


async def test_work_that_raises_writes_nothing(url: str) -> None:
    def broken(connection: Connection) -> None:
        connection.execute(KEYS)
        raise ZeroDivisionError

    def twice(connection: Connection) -> None:
        connection.execute(KEYS)
        connection.execute(KEYS)

    database = await Database.open(url)
    with pytest.raises(ZeroDivisionError):
        await database.write(broken)
    with pytest.raises(Refused):
        await database.write(twice)
    assert await database.read(count) == 0
    await database.close()


async def test_work_that_is_too_slow_is_a_store_error_and_what_waited_behind_it_never_runs(url: str) -> None:
    database = await Database.open(url)
    database._timeout_s = 0.05
    hold = threading.Event()

    def stuck(connection: Connection) -> None:
        assert hold.wait(60)
        raise ZeroDivisionError

    def behind(connection: Connection) -> None:
        connection.execute(KEYS)

    results = await asyncio.gather(database.write(stuck), database.write(behind), return_exceptions=True)
    assert [type(result) for result in results] == [StoreError, StoreError]
    hold.set()
    database._timeout_s = 20
    assert await database.write(count) == 0
    await database.close()


async def test_a_closed_database_refuses(url: str) -> None:
    database = await Database.open(url)
    await database.close()
    with pytest.raises(StoreError):
        await database.read(count)
    with pytest.raises(StoreError):
        await database.write(count)


async def test_the_store_works_again_after_the_server_restarts(postgres: PrivatePostgres) -> None:
    database = await Database.open(postgres.empty_database())
    postgres.stop()
    with pytest.raises(StoreError):
        await database.read(count)
    postgres.start()
    assert await database.read(count) == 0
    await database.close()
