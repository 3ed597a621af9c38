"""Race: one session puts a frame that another session, its only holder, is being deleted with.

Contract: once its log is flushed the frame is there, whichever step of the deletion ran in between.
"""

import asyncio

from memory.store.store import Store
from tests.store.conftest import Stores, new_session, put


async def test_deleted_between_the_file_and_its_record(stores: Stores, store: Store) -> None:
    holder, newcomer = await new_session(store, "s1"), await new_session(store, "s2")
    await put(holder, "f", b"jpeg")
    newcomer.frames.write("f", b"jpeg")
    await store.delete("s1")
    await newcomer.frames.put("f", b"jpeg")
    await newcomer.log.flush()
    elsewhere = await (await stores.open()).session("s2")
    assert elsewhere.frames.get("f") == b"jpeg"


async def test_deletions_expiry_and_puts_of_the_same_frames_from_two_processes(
    stores: Stores, store: Store
) -> None:
    elsewhere = await stores.open()
    keeper = await new_session(store, "keeper")

    async def come_and_go(name: str) -> None:
        session = await new_session(elsewhere, name)
        await asyncio.gather(*(put(session, f"f{i}", b"x%d" % i) for i in range(5)))
        await elsewhere.delete(name)

    async def put_and_check() -> None:
        for i in (*range(5), *range(5)):
            await put(keeper, f"f{i}", b"x%d" % i)
            store._cache.forget(store._files.name("t", f"f{i}"))
            assert keeper.frames.get(f"f{i}") == b"x%d" % i

    async with asyncio.timeout(60):
        await asyncio.gather(put_and_check(), *(come_and_go(f"g{i}") for i in range(6)))
    assert [keeper.frames.get(f"f{i}") for i in range(5)] == [b"x%d" % i for i in range(5)]
