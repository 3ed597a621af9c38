"""Race: a session is deleted while its log appends, its write is in flight, or another process writes it.

Contract: the deletion wins. Appends and flushes get ``SessionGone``; nothing of the session is left once
everyone has stopped; other sessions of the same transaction are written.
"""

import asyncio

import pytest

from memory.store.errors import SessionGone
from memory.store.store import Store
from tests.store.conftest import HeldWrites, Stores, new_session, put
from tests.store.test_retention import files, rows


async def test_deleted_while_its_write_is_in_flight(
    stores: Stores, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = await new_session(store, "s1"), await new_session(store, "s2")
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        session.log.append("k", {})
        other.log.append("k", {})
        flushes = [asyncio.create_task(each.log.flush()) for each in (session, other)]
        await held.waiting.wait()
        deletion = asyncio.create_task(store.delete("s1"))
        gone, kept = await asyncio.gather(flushes[0], asyncio.sleep(0), return_exceptions=True)
        assert isinstance(gone, SessionGone)
        with pytest.raises(SessionGone):
            session.log.append("k", {})
        held.let_go()
        await deletion
        await flushes[1]
    assert kept is None
    left = await rows(store)
    assert (left["sessions"], left["facts"]) == (1, 1)


async def test_deleted_by_another_process_while_it_goes_on(stores: Stores, store: Store) -> None:
    session, other = await new_session(store, "s1"), await new_session(store, "s2")
    elsewhere = await stores.open()

    async def work() -> int:
        number = 0
        while True:
            number += 1
            session.log.append("k", {"i": number})
            await put(session, f"f{number}", b"x%d" % number)
            await session.log.flush()

    async def work_on_other() -> None:
        for _ in range(30):
            other.log.append("k", {})
            await other.log.flush()

    busy = asyncio.create_task(work())
    healthy = asyncio.create_task(work_on_other())
    session.log.append("k", {})
    await session.log.flush()
    await elsewhere.delete("s1")
    with pytest.raises(SessionGone):
        async with asyncio.timeout(60):
            await busy
    await healthy
    left = await rows(store)
    assert left == {"sessions": 1, "facts": 30, "snapshots": 0, "frames": 0, "frame_refs": 0}
    assert files(stores) == []
