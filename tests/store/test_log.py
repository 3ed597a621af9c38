"""The durable log keeps the seam of memory/store/base.py: buffered appends, flush as barrier, no gaps."""

import asyncio

import pytest

from memory.store.database import Database
from memory.store.errors import LogConflict, LogFull, StoreError
from memory.store.log import DurableLog
from memory.store.store import Store
from memory.store.writer import GroupWriter
from orchestrator.keeping import WatchedLog
from tests.store.conftest import Clock, HeldWrites, Stores, new_session, put


async def test_appends_are_numbered_and_durable_after_flush(
    stores: Stores, store: Store, clock: Clock
) -> None:
    log = (await new_session(store)).log
    seam: WatchedLog = log
    assert [seam.append("k", {"i": i}) for i in range(3)] == [1, 2, 3]
    clock.now += 1
    await seam.flush()
    assert log.statistics()["durable"] == 3
    other = (await (await stores.open()).session("s1")).log
    assert await other.read() == await log.read()
    assert [entry.seq for entry in await other.read(after=1)] == [2, 3]
    assert await other.read(after=3) == []


async def test_read_returns_what_is_not_durable_yet_too(store: Store) -> None:
    log = (await new_session(store)).log
    log.append("durable", {})
    await log.flush()
    log.append("waiting", {})
    assert [entry.kind for entry in await log.read()] == ["durable", "waiting"]
    assert [entry.kind for entry in await log.read(after=1)] == ["waiting"]


async def test_unflushed_rows_reach_the_disk_within_the_linger(stores: Stores, store: Store) -> None:
    log = (await new_session(store)).log
    log.append("k", {})
    other = await stores.open()
    async with asyncio.timeout(60):
        while not await (await other.session("s1")).log.read():
            await (await other.session("s1")).release()


async def test_long_logs_are_read_in_pages(store: Store) -> None:
    log = (await new_session(store)).log
    for i in range(2500):
        log.append("k", {"i": i})
    await log.flush()
    assert [entry.seq for entry in await log.read()] == list(range(1, 2501))
    pages = [page async for page in log.pages(2, 9, size=3)]
    assert [[entry.seq for entry in page] for page in pages] == [[3, 4, 5], [6, 7, 8], [9]]


async def test_data_is_json_and_a_copy(store: Store) -> None:
    log = (await new_session(store)).log
    data = {"list": [1], "big": 2**53 + 1, "float": 0.1, "nested": {"b": 1, "a": None}}
    log.append("k", data)
    data["list"] = [2]
    await log.flush()
    entry = (await log.read())[0]
    assert entry.data == {**data, "list": [1]}
    assert list(entry.data["nested"]) == ["b", "a"], "key order is part of the record"
    with pytest.raises(TypeError):
        log.append("k", {"x": object()})
    assert log.seq == 1


async def test_listeners_hear_every_append_at_once(store: Store) -> None:
    log = (await new_session(store)).log
    heard: list[int] = []
    leave = log.subscribe(lambda entry: heard.append(entry.seq))
    log.append("k", {})
    assert heard == [1]
    leave()
    log.append("k", {})
    assert heard == [1]


async def test_a_full_buffer_refuses_and_recovers_after_flush(store: Store, clock: Clock) -> None:
    session = await new_session(store)
    log = DurableLog("s1", 0, database=store._database, writer=store._writer, now_ms=clock, max_pending=2)
    log.append("k", {})
    log.append("k", {})
    with pytest.raises(LogFull) as error:
        log.append("k", {})
    assert error.value.code == "log_full"
    await log.flush()
    assert log.append("k", {}) == 3
    await log.flush()
    assert [entry.seq for entry in await session.log.pages(0, 9).__anext__()] == [1, 2, 3]


async def test_many_sessions_share_a_transaction(store: Store) -> None:
    logs = [(await new_session(store, f"s{i}")).log for i in range(20)]
    before = store.statistics()["writer"]["transactions"]
    for log in logs:
        log.append("k", {})
    await asyncio.gather(*(log.flush() for log in logs))
    assert store.statistics()["writer"]["transactions"] - before == 1


async def test_a_frame_and_the_facts_that_name_it_share_a_transaction(stores: Stores, store: Store) -> None:
    session = await new_session(store)
    before = store.statistics()["writer"]["transactions"]
    session.frames.write("f", b"x")
    await session.frames.put("f", b"x")
    session.log.append("frame_seen", {"uuid": "f"})
    assert session.log.statistics()["frames"] == 1
    await session.log.flush()
    assert store.statistics()["writer"]["transactions"] - before == 1
    assert session.log.statistics()["frames"] == 0
    assert (await (await stores.open()).session("s1")).frames.get("f") == b"x"


async def test_a_frame_alone_waits_for_its_record_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await new_session(store)
    session.frames.write("f", b"x")
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        await session.frames.put("f", b"x")
        flush = asyncio.create_task(session.log.flush())
        await held.waiting.wait()
        assert not flush.done()
        held.let_go()
        await flush
    await session.log.flush()


async def test_large_backlogs_go_in_several_transactions(url: str, clock: Clock, store: Store) -> None:
    await new_session(store, "s1")
    await new_session(store, "s2")
    database = await Database.open(url)
    writer = GroupWriter(database, store._files, store._retention.remove_unrecorded, max_rows=10)
    logs = [DurableLog(name, 0, database=database, writer=writer, now_ms=clock) for name in ("s1", "s2")]
    for log in logs:
        for _ in range(25):
            log.append("k", {})
    await asyncio.gather(*(log.flush() for log in logs))
    assert [len(await log.read()) for log in logs] == [25, 25]
    assert writer.statistics() == {
        "transactions": 5,
        "facts": 50,
        "frames": 0,
        "failed": 0,
        "retries": 0,
        "largest": 10,
        "waiting": 0,
    }
    await writer.close()
    await database.close()


async def test_close_writes_what_waits_and_a_closed_store_refuses(stores: Stores, store: Store) -> None:
    session = await new_session(store)
    session.log.append("k", {})
    reopened = await stores.reopen(store)
    assert len(await (await reopened.session("s1")).log.read()) == 1
    session.log.append("late", {})
    with pytest.raises(StoreError):
        await session.log.flush()
    with pytest.raises(StoreError):
        await put(session, "f", b"x")


async def test_a_released_session_takes_no_more(store: Store) -> None:
    session = await new_session(store)
    session.log.append("k", {})
    await session.release()
    with pytest.raises(StoreError):
        session.log.append("k", {})
    assert len(await (await store.session("s1")).log.read()) == 1


async def test_a_second_process_that_writes_the_same_log_is_refused(stores: Stores, store: Store) -> None:
    first = await new_session(store)
    healthy = await new_session(store, "s2")
    second = await (await stores.open()).session("s1")
    first.log.append("mine", {})
    await first.log.flush()
    second.log.append("theirs", {})
    with pytest.raises(LogConflict) as error:
        await second.log.flush()
    assert error.value.code == "log_conflict"
    with pytest.raises(LogConflict):
        second.log.append("more", {})
    # The winner goes on, and the loser may open the session again and see the winner's log.
    first.log.append("mine", {})
    healthy.log.append("k", {})
    await asyncio.gather(first.log.flush(), healthy.log.flush())
    again = await stores.opened[1].session("s1")
    assert [entry.kind for entry in await again.log.read()] == ["mine", "mine"]


async def test_a_conflict_in_a_shared_transaction_stays_with_its_session(
    stores: Stores, store: Store
) -> None:
    loser = await new_session(store, "s1")
    others = [await new_session(store, f"o{i}") for i in range(5)]
    winner = await (await stores.open()).session("s1")
    winner.log.append("k", {})
    await winner.log.flush()
    for session in (loser, *others):
        session.log.append("k", {})
    results = await asyncio.gather(
        *(session.log.flush() for session in (loser, *others)), return_exceptions=True
    )
    assert isinstance(results[0], LogConflict)
    assert results[1:] == [None] * 5
    for session in others:
        assert len(await session.log.read()) == 1
