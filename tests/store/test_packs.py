"""Prompt packs are kept once, verbatim, as long as a session refers to them."""

import asyncio
import io
import tarfile

import pytest
from sqlalchemy import func, select

from memory.store.errors import SessionGone
from memory.store.schema import PACKS
from memory.store.store import Store
from tests.store.conftest import Stores, new_session

SOURCE = '{"files": {"persona": "Wache, „ä“\\u2028"}}'


async def count(store: Store) -> int:
    found = await store._database.read(lambda c: c.scalar(select(func.count()).select_from(PACKS)))
    return int(found or 0)


async def test_a_pack_comes_back_verbatim_after_a_restart(stores: Stores) -> None:
    store = await stores.open()
    session = await new_session(store)
    await session.keep_pack("d1", SOURCE)
    await session.keep_pack("d1", SOURCE)
    await session.keep_pack("d2", "{}")
    store = await stores.reopen(store)
    assert await store.packs("s1") == {"d1": SOURCE, "d2": "{}"}
    assert await store.packs("nobody") == {}


async def test_sessions_share_a_pack_and_the_last_one_takes_it_along(store: Store) -> None:
    for name in ("a", "b"):
        await (await new_session(store, name)).keep_pack("d1", SOURCE)
    assert await count(store) == 1
    await store.delete("a")
    assert await store.packs("b") == {"d1": SOURCE}
    await store.delete("b")
    assert await count(store) == 0


async def test_a_deleted_session_keeps_no_pack(store: Store) -> None:
    session = await new_session(store)
    await store.delete("s1")
    with pytest.raises(SessionGone):
        await session.keep_pack("d1", SOURCE)
    assert await count(store) == 0


async def test_a_pack_that_is_kept_while_its_last_session_goes_stays(store: Store) -> None:
    for number in range(10):
        old, new = f"old{number}", f"new{number}"
        await (await new_session(store, old)).keep_pack("d1", SOURCE)
        session = await new_session(store, new)
        await asyncio.gather(store.delete(old), session.keep_pack("d1", SOURCE))
        assert await store.packs(new) == {"d1": SOURCE}
        await store.delete(new)


async def test_an_export_holds_the_packs(store: Store) -> None:
    await (await new_session(store)).keep_pack("d1", SOURCE)
    data = b"".join([part async for part in store.export("s1")])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.extractfile("packs/d1.json").read().decode() == SOURCE  # type: ignore[union-attr]
