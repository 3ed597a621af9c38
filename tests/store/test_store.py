"""Sessions in the store: created, found, listed, resumed, kept apart."""

import pytest

from memory.store.errors import LogConflict, SessionExists, SessionGone
from memory.store.store import Store
from tests.store.conftest import Clock, Stores, new_session, put


async def test_a_session_comes_back_after_a_restart(stores: Stores, store: Store, clock: Clock) -> None:
    session = await new_session(store, alias="door")
    clock.now += 5
    session.log.append("query_set", {"text": "är dörren öppen? \x00 \U0001f6aa"})
    await session.log.flush()
    await put(session, "f1", b"jpeg")
    store = await stores.reopen(store)
    info = await store.info("s1")
    assert (info.tenant, info.alias, info.model, info.pack_digest, info.renderer) == (
        "t",
        "door",
        "m",
        "p",
        1,
    )
    assert (info.created_ms, info.updated_ms, info.last_seq) == (1_000_000, 1_000_005, 1)
    session = await store.session("s1")
    entry = (await session.log.read())[0]
    assert (entry.seq, entry.at_ms, entry.kind) == (1, 1_000_005, "query_set")
    assert entry.data == {"text": "är dörren öppen? \x00 \U0001f6aa"}
    assert session.log.append("k", {}) == 2
    assert session.frames.get("f1") == b"jpeg"


async def test_one_object_for_each_open_session(store: Store) -> None:
    session = await new_session(store)
    assert await store.session("s1") is session
    await session.release()
    assert await store.session("s1") is not session
    with pytest.raises(SessionGone):
        await store.session("s2")


async def test_ids_and_live_aliases_are_taken_once(store: Store) -> None:
    first = await new_session(store, "s1", alias="door")
    await new_session(store, "s2", alias="gate")
    await new_session(store, "s3", tenant="other", alias="door")
    with pytest.raises(SessionExists):
        await new_session(store, "s1")
    with pytest.raises(SessionExists):
        await new_session(store, "s4", alias="door")
    found = await store.find("t", "door")
    assert found is not None and found.id == "s1"
    await first.close()
    assert await store.find("t", "door") is None
    await new_session(store, "s4", alias="door")
    found = await store.find("t", "door")
    assert found is not None and found.id == "s4"


async def test_sessions_are_listed_newest_first_in_pages_by_tenant(store: Store, clock: Clock) -> None:
    for name in ("a", "b", "c", "d"):
        await new_session(store, name)
        clock.now += name != "b"  # b and c share their time
    await new_session(store, "x", tenant="other")
    first = await store.sessions("t", limit=2)
    second = await store.sessions("t", limit=2, after=first[-1].id)
    assert [info.id for info in first + second] == ["d", "c", "b", "a"]
    assert await store.sessions("t", limit=2, after="a") == []
    with pytest.raises(SessionGone):
        await store.sessions("t", after="nobody")


async def test_snapshots_replace_each_other_and_never_outrun_the_log(stores: Stores, store: Store) -> None:
    session = await new_session(store)
    assert await session.snapshot("memory") is None
    for number in (1, 2):
        seq = session.log.append("k", {})
        await session.save_snapshot("memory", seq, {"state": number})
        assert session.log.statistics()["durable"] == seq
    store = await stores.reopen(store)
    session = await store.session("s1")
    snapshot = await session.snapshot("memory")
    assert snapshot is not None and (snapshot.seq, snapshot.data) == (2, {"state": 2})
    assert session.log.seq == 2


async def test_keys_are_made_once_and_differ_between_tenants(stores: Stores, store: Store) -> None:
    keys = await store.keys("t")
    assert await store.keys("t") == keys
    other = await store.keys("other")
    again = await (await stores.open()).keys("t")
    assert again == keys
    assert keys.frame_key != other.frame_key
    assert keys.cache_salt() == again.cache_salt() != other.cache_salt()


async def test_everything_about_a_deleted_session_says_so(store: Store) -> None:
    session = await new_session(store)
    await store.delete("s1")
    with pytest.raises(SessionGone):
        session.log.append("k", {})
    for ask in (session.info, session.close, session.log.flush):
        with pytest.raises(SessionGone):
            await ask()
    with pytest.raises(SessionGone):
        await store.delete("s1")
    with pytest.raises(SessionGone):
        await put(session, "f", b"x")
    assert await store.sessions("t") == []


async def test_facts_are_read_without_opening_a_session(stores: Stores, store: Store) -> None:
    session = await new_session(store)
    for n in range(5):
        session.log.append("k", {"n": n})
    assert [e.seq async for page in store.entries("s1") for e in page] == [1, 2, 3, 4, 5]
    assert [e.seq async for page in store.entries("s1", after=3) for e in page] == [4, 5]
    store = await stores.reopen(store)
    assert [e.data["n"] async for page in store.entries("s1") for e in page] == [0, 1, 2, 3, 4]
    assert store.statistics()["open"] == 0
    with pytest.raises(SessionGone):
        [page async for page in store.entries("s2")]


async def test_a_log_that_failed_is_read_as_far_as_it_is_durable(store: Store) -> None:
    session = await new_session(store)
    session.log.append("k", {})
    await session.log.flush()
    session.log.append("k", {})
    session.log.fail(LogConflict("someone else"))
    assert [e.seq async for page in store.entries("s1") for e in page] == [1]


async def test_readers_keep_their_place(stores: Stores, store: Store) -> None:
    for name in ("s1", "s2"):
        await new_session(store, name)
        await store.bookmark(name, "reader", 3)
    await store.bookmark("s1", "reader", 7)
    await store.bookmark("s1", "other", 1)
    store = await stores.reopen(store)
    assert await store.bookmarks("reader") == {"s1": 7, "s2": 3}
    assert await store.bookmarks("reader", "s2") == {"s2": 3}
    assert await store.bookmarks("nobody") == {}
    await store.delete("s1")
    assert await store.bookmarks("reader") == {"s2": 3}
    with pytest.raises(SessionGone):
        await store.bookmark("s1", "reader", 8)
