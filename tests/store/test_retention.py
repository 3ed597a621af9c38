"""What leaves the store and what stays: deletions, expiry, left-overs of a crash. Times are given."""

import asyncio
import os
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from memory.store import retention as retention_module
from memory.store.errors import SessionGone
from memory.store.retention import Swept
from memory.store.schema import FACTS, FRAME_REFS, FRAMES, SESSIONS, SNAPSHOTS
from memory.store.store import Keeping, Store
from tests.store.conftest import Clock, Stores, new_session, put


def files(stores: Stores) -> list[Path]:
    return [path for path in (stores.folder / "frames").rglob("*") if path.is_file()]


async def rows(store: Store) -> dict[str, int]:
    tables = (SESSIONS, FACTS, SNAPSHOTS, FRAMES, FRAME_REFS)
    return await store._database.read(
        lambda connection: {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables
        }
    )


async def test_deleting_a_session_leaves_nothing_of_it(store: Store, stores: Stores) -> None:
    session = await new_session(store)
    await asyncio.gather(*(put(session, f"f{i}", bytes([i])) for i in range(5)))
    session.log.append("k", {})
    await session.save_snapshot("memory", 1, {})
    await store.delete("s1")
    assert set((await rows(store)).values()) == {0}
    assert files(stores) == []
    with pytest.raises(KeyError):
        session.frames.get("f0")


async def test_a_frame_stays_while_another_session_of_the_tenant_holds_it(store: Store) -> None:
    first, second = await new_session(store, "s1"), await new_session(store, "s2")
    for session in (first, second):
        await put(session, "shared", b"same")
    await put(first, "own", b"own")
    await store.delete("s1")
    assert second.frames.get("shared") == b"same"
    with pytest.raises(KeyError):
        second.frames.get("own")
    await store.delete("s2")
    with pytest.raises(KeyError):
        second.frames.get("shared")


async def test_tenants_never_share_a_frame(store: Store) -> None:
    mine = await new_session(store, "s1", tenant="a")
    theirs = await new_session(store, "s2", tenant="b")
    await put(mine, "f", b"mine")
    with pytest.raises(KeyError):
        theirs.frames.get("f")
    await put(theirs, "f", b"theirs")
    await store.delete("s2")
    assert mine.frames.get("f") == b"mine"


async def test_large_sessions_go_in_slices(
    store: Store, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "_FRAMES_A_SLICE", 2)
    monkeypatch.setattr(retention_module, "_FACTS_A_SLICE", 3)
    session = await new_session(store)
    for i in range(7):
        session.log.append("k", {})
        await put(session, f"f{i}", b"x")
    await session.log.flush()
    await store.delete("s1")
    assert set((await rows(store)).values()) == {0}
    assert files(stores) == []


async def test_a_deletion_cut_short_hides_the_session_and_the_sweep_finishes_it(
    stores: Stores, store: Store, clock: Clock
) -> None:
    session = await new_session(store, alias="door")
    await put(session, "f", b"x")
    session.log.append("k", {})
    await session.log.flush()
    mark = update(SESSIONS).values(deleted_ms=1)
    await store._database.write(lambda connection: connection.execute(mark).rowcount)
    store = await stores.reopen(store)
    with pytest.raises(SessionGone):
        await store.session("s1")
    assert await store.sessions("t") == []
    assert await store.find("t", "door") is None
    await new_session(store, "s2", alias="door")
    assert (await store.sweep(clock.now)).sessions == 1
    assert (await rows(store))["sessions"] == 1
    assert files(stores) == []


async def test_sessions_outlive_their_retention_from_their_last_fact(stores: Stores, clock: Clock) -> None:
    store = await stores.open(Keeping(session_ms=1000, frame_ms=None))
    for name in ("quiet", "busy", "open"):
        session = await new_session(store, name)
        if name != "open":
            await session.release()
    clock.now += 500
    busy = await store.session("busy")
    busy.log.append("k", {})
    await busy.release()
    assert await store.sweep(clock.now + 499) == Swept(0, 0, 0)
    assert await store.sweep(clock.now + 500) == Swept(1, 0, 0)
    assert [info.id for info in await store.sessions("t")] == ["open", "busy"]
    assert (await store.sweep(clock.now + 1000)).sessions == 1
    assert [info.id for info in await store.sessions("t")] == ["open"]
    await (await store.session("open")).release()
    assert (await store.sweep(clock.now + 5000)).sessions == 1


async def test_without_retention_nothing_leaves(stores: Stores, clock: Clock) -> None:
    store = await stores.open(Keeping(session_ms=None, frame_ms=None))
    session = await new_session(store)
    await put(session, "f", b"x")
    await session.release()
    assert await store.sweep(clock.now + 10**15) == Swept(0, 0, 0)


async def test_frames_expire_after_they_were_last_put(stores: Stores, clock: Clock) -> None:
    store = await stores.open(Keeping(frame_ms=1000))
    session = await new_session(store)
    await put(session, "old", b"old")
    await put(session, "again", b"again")
    clock.now += 600
    await put(session, "again", b"again")
    assert (await store.sweep(clock.now + 400)).frames == 1
    with pytest.raises(KeyError):
        session.frames.get("old")
    assert session.frames.get("again") == b"again"
    assert (await store.sweep(clock.now + 1000)).frames == 1
    assert files(stores) == []
    assert (await rows(store))["frame_refs"] == 0
    await put(session, "old", b"old")
    assert session.frames.get("old") == b"old"


async def test_files_that_a_crash_left_behind_are_removed_after_their_grace(
    stores: Stores, store: Store, clock: Clock
) -> None:
    session = await new_session(store)
    await put(session, "kept", b"x")
    store._files.write("ab" + "0" * 62, b"no record")
    (stores.folder / "frames/ab/00/x.tmp").write_bytes(b"half")
    for path in files(stores):
        os.utime(path, (1000, 1000))
    grace_ms = 3_600_000
    folders, removed = 256 // 8, 0
    for _ in range(folders):
        removed += (await store.sweep(1_000_000 + grace_ms)).orphans
    assert removed == 0
    for _ in range(folders):
        removed += (await store.sweep(1_000_001 + grace_ms)).orphans
    assert removed == 2
    assert [path.read_bytes() for path in files(stores)] == [b"x"]
