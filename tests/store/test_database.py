"""Opening a database: migrations once and in order, typed refusals, SQLite's settings."""

import asyncio
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
    async with database.read() as connection:
        assert await connection.run_sync(_columns) == _described()
    await database.close()


async def test_two_processes_may_open_a_new_database_at_once(url: str) -> None:
    first, second = await asyncio.gather(Database.open(url), Database.open(url))
    async with second.read() as connection:
        versions = (await connection.scalars(text("SELECT version FROM schema_version"))).all()
    assert versions == list(range(1, len(versions) + 1))
    await first.close()
    await second.close()


async def test_a_newer_schema_is_refused_untouched(url: str) -> None:
    database = await Database.open(url)
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO schema_version VALUES (999)"))
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
    async with database.read() as connection:
        pragmas = {
            name: await connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "secure_delete": 1,
        "busy_timeout": 5000,
    }
    await database.close()


async def test_a_block_that_raises_writes_nothing(url: str) -> None:
    database = await Database.open(url)
    with pytest.raises(ZeroDivisionError):
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO tenant_keys VALUES ('t', 'a', 'b', 1)"))
            raise ZeroDivisionError
    with pytest.raises(Refused):
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO tenant_keys VALUES ('t', 'a', 'b', 1)"))
            await connection.execute(text("INSERT INTO tenant_keys VALUES ('t', 'a', 'b', 1)"))
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM tenant_keys")) == 0
    await database.close()


async def test_a_transaction_that_is_too_slow_is_a_store_error(url: str) -> None:
    database = await Database.open(url, timeout_s=5)
    database._timeout_s = 0.05
    with pytest.raises(StoreError):
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO tenant_keys VALUES ('t', 'a', 'b', 1)"))
            await asyncio.Event().wait()
    database._timeout_s = 5
    async with database.write() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM tenant_keys")) == 0
    await database.close()


async def test_the_store_works_again_after_the_server_restarts(postgres: PrivatePostgres) -> None:
    database = await Database.open(postgres.new_database())
    postgres.stop()
    with pytest.raises(StoreError):
        async with database.read() as connection:
            await connection.scalar(text("SELECT 1"))
    postgres.start()
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1
    await database.close()
