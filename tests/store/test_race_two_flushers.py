"""Race: two tasks append to one log and flush at the same time, while a write is in flight.

Contract: each flush returns only when everything appended before it is durable, or all up to the entry it
names; nothing is written twice or left out; a flush never waits for what came after it.
"""

import asyncio

import pytest

from memory.store.store import Store
from tests.store.conftest import HeldWrites, new_session


async def test_each_flush_covers_what_was_appended_before_it_and_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (await new_session(store)).log
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        log.append("k", {})
        first = asyncio.create_task(log.flush())
        await held.waiting.wait()  # fact 1 is in a transaction that has not begun
        same = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        log.append("k", {})
        second = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        assert not same.done(), "a fact in flight is not durable"
        held.let_one_go()
        await asyncio.gather(first, same)
        await held.waiting.wait()  # fact 2 is in the next transaction
        assert not second.done()
        assert log.statistics()["durable"] == 1
        held.let_go()
        await second
    assert log.statistics()["durable"] == 2


async def test_a_flush_of_what_is_older_does_not_wait_for_what_is_newer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (await new_session(store)).log
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        log.append("k", {})
        first = asyncio.create_task(log.flush())
        await held.waiting.wait()  # fact 1 is in a transaction that has not begun
        log.append("k", {})
        both = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        older = asyncio.create_task(log.flush(1))
        held.let_one_go()
        await asyncio.gather(first, older)
        assert not both.done()
        await log.flush(1)
        held.let_go()
        await both


async def test_many_flushers_write_each_fact_once(store: Store) -> None:
    log = (await new_session(store)).log
    durable_after: list[tuple[int, int]] = []

    async def work() -> None:
        for _ in range(20):
            seq = log.append("k", {})
            await log.flush()
            durable_after.append((seq, log.statistics()["durable"]))

    await asyncio.gather(*(work() for _ in range(8)))
    assert all(durable >= seq for seq, durable in durable_after)
    assert [entry.seq for entry in await log.read()] == list(range(1, 161))
    statistics = store.statistics()["writer"]
    assert statistics["facts"] == 160
    assert statistics["transactions"] < 160
