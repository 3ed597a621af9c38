"""Race: two tasks append to one log and flush at the same time, while a write is in flight.

Contract: each flush returns only when everything appended before it is durable; nothing is written twice
or left out; a flush never waits for what came after it.
"""

import asyncio

import pytest

from memory.store.store import Store
from tests.store.conftest import HeldWrites, Stores, new_session


async def test_each_flush_covers_what_was_appended_before_it(
    stores: Stores, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (await new_session(store)).log
    reader = await stores.open()

    async def durable() -> int:
        return (await reader.info("s1")).last_seq

    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        log.append("k", {})
        first = asyncio.create_task(log.flush())
        await held.waiting.wait()
        log.append("k", {})
        second = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        held.let_go()
        await first
        log.append("k", {})  # nobody flushes this one
        assert await durable() >= 1
        await second
        assert await durable() >= 2


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
