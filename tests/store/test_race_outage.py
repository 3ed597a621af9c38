"""Race: the database goes away while facts are written.

Contract: an outage shorter than the writer's patience costs time, not facts, and nobody learns of it. A try
that broke off after its commit is recognised; a conflict with another process still is a conflict.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from memory.store.errors import LogConflict, StoreError
from memory.store.store import Store
from tests.fakes.postgres import PrivatePostgres
from tests.store.conftest import Clock, Stores, new_session, put


def break_off_after_commit(store: Store, patch: pytest.MonkeyPatch) -> None:
    """The next write commits, and the connection is lost before the answer."""
    write = store._database.write

    async def broken(work: Callable[[Connection], Any], **locks: str | None) -> Any:
        patch.setattr(store._database, "write", write)
        await write(work, **locks)
        raise StoreError("connection lost")

    patch.setattr(store._database, "write", broken)


async def test_a_commit_whose_answer_was_lost_is_recognised(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [await new_session(store, f"s{i}") for i in range(3)]
    break_off_after_commit(store, monkeypatch)
    for session in sessions:
        session.log.append("k", {"nested": [1, "ä"]})
        session.log.append("k", {})
    await asyncio.gather(*(session.log.flush() for session in sessions), put(sessions[0], "f", b"x"))
    for session in sessions:
        assert [entry.seq for entry in await session.log.read()] == [1, 2]
        assert session.log.append("k", {}) == 3
        await session.log.flush()
    assert store.statistics()["writer"]["retries"] == 1


async def test_a_conflict_after_an_outage_is_still_a_conflict(
    stores: Stores, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await new_session(store)
    theirs = await (await stores.open()).session("s1")
    theirs.log.append("theirs", {})
    await theirs.log.flush()
    write = store._database.write

    async def away(work: Callable[[Connection], Any], **locks: str | None) -> Any:
        monkeypatch.setattr(store._database, "write", write)
        raise StoreError("connection refused")

    monkeypatch.setattr(store._database, "write", away)
    mine.log.append("mine", {})
    with pytest.raises(LogConflict):
        await mine.log.flush()


async def test_a_restart_of_the_server_costs_time_only(
    postgres: PrivatePostgres, tmp_path: Path, clock: Clock
) -> None:
    store = await Store.open(postgres.empty_database(), tmp_path, now_ms=clock)
    session = await new_session(store)
    session.log.append("before", {})
    await session.log.flush()
    await asyncio.to_thread(postgres.stop)
    session.log.append("during", {})
    flush = asyncio.create_task(session.log.flush())
    while not store.statistics()["writer"]["retries"]:
        await asyncio.wait([flush], timeout=0.01)
    assert not flush.done()
    await asyncio.to_thread(postgres.start)
    await flush
    assert [entry.kind for entry in await session.log.read()] == ["before", "during"]
    await store.close()
