"""Frames are durable when their session's log is, whole or absent, and can't leave their folder."""

import asyncio
from pathlib import Path

import pytest

from memory.store.base import FrameStore
from memory.store.errors import StoreError
from memory.store.files import FrameFiles
from memory.store.store import Store
from tests.store.conftest import Stores, new_session, put


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_put_and_get_keep_the_seam_and_the_bytes(stores: Stores, store: Store) -> None:
    session = await new_session(store)
    seam: FrameStore = session.frames
    seam.write("f", b"jpeg")
    await seam.put("f", b"jpeg")
    assert seam.get("f") == b"jpeg"
    await session.log.flush()
    other = await (await stores.open()).session("s1")
    assert other.frames.get("f") == b"jpeg"
    with pytest.raises(KeyError):
        seam.get("unknown")


async def test_frames_larger_than_the_cache_are_read_from_disk(stores: Stores) -> None:
    store = await stores.open(cache_bytes=3)
    session = await new_session(store)
    await put(session, "large", b"larger")
    assert session.frames.get("large") == b"larger"
    assert store.statistics()["cache"]["frames"] == 0


async def test_the_same_frame_at_the_same_time_is_one_file(stores: Stores, store: Store) -> None:
    sessions = [await new_session(store, f"s{i}") for i in range(4)]
    await asyncio.gather(*(put(session, "f", b"jpeg") for session in sessions for _ in range(3)))
    assert [path.read_bytes() for path in files_of(stores.folder)] == [b"jpeg"]
    before = files_of(stores.folder)[0].stat()
    await put(sessions[0], "f", b"jpeg")
    assert files_of(stores.folder)[0].stat().st_ino == before.st_ino, "it was written again"


async def test_identities_are_never_paths(tmp_path: Path) -> None:
    files = FrameFiles(tmp_path / "frames")
    for uuid in ("../../../etc/passwd", "/etc/passwd", "", "\x00", "a" * 5000):
        name = FrameFiles.name("../t", uuid)
        files.write(name, b"x")
        assert files.read(name) == b"x"
    assert files_of(tmp_path) == files_of(tmp_path / "frames")
    assert FrameFiles.name("a", "bc") != FrameFiles.name("ab", "c")
    await files.close()


async def test_a_disk_that_refuses_is_a_store_error_and_leaves_no_half_file(tmp_path: Path) -> None:
    files = FrameFiles(tmp_path / "frames")
    name = FrameFiles.name("t", "f")
    (tmp_path / "frames" / name[:2]).write_bytes(b"a file where a folder must be")
    with pytest.raises(StoreError):
        files.write(name, b"x")
    (tmp_path / "frames" / name[:2]).unlink()
    files.write(name, b"x")
    assert [path.name for path in files_of(tmp_path)] == [name]
    await files.close()
