"""The in-memory store keeps the seams of memory/store/base.py, within its bounds."""

import pytest

from memory.store.base import FrameStore
from memory.store.errors import FrameTooLarge
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.keeping import WatchedLog


async def test_frames_come_back_until_the_cap_and_the_least_used_go_first() -> None:
    frames = TransientFrames(max_bytes=10)
    seam: FrameStore = frames
    await seam.put("a", b"aaaa")
    await seam.put("b", b"bbbb")
    assert frames.get("a") == b"aaaa"  # now b is the least recently used
    await seam.put("c", b"cccc")
    assert frames.get("a") == b"aaaa"
    assert frames.get("c") == b"cccc"
    with pytest.raises(KeyError):
        frames.get("b")
    assert frames.statistics() == {"frames": 2, "bytes": 8, "max_bytes": 10, "evicted": 1}


async def test_the_same_frame_twice_counts_once() -> None:
    frames = TransientFrames(max_bytes=10)
    for _ in range(5):
        await frames.put("a", b"aaaa")
    assert frames.statistics()["bytes"] == 4


async def test_a_frame_larger_than_the_store_is_refused_and_evicts_nothing() -> None:
    frames = TransientFrames(max_bytes=4)
    await frames.put("a", b"aaaa")
    with pytest.raises(FrameTooLarge) as error:
        await frames.put("b", b"bbbbb")
    assert error.value.code == "frame_too_large"
    assert frames.get("a") == b"aaaa"


async def test_log_numbers_from_one_and_reads_after() -> None:
    now = iter(range(100, 200))
    log = TransientLog(lambda: next(now))
    seam: WatchedLog = log
    assert [seam.append("k", {"i": i}) for i in range(3)] == [1, 2, 3]
    await seam.flush()
    entries = await log.read(after=1)
    assert [(e.seq, e.at_ms, e.kind, e.data) for e in entries] == [
        (2, 101, "k", {"i": 1}),
        (3, 102, "k", {"i": 2}),
    ]


async def test_log_keeps_a_copy_of_plain_data() -> None:
    log = TransientLog(lambda: 0)
    data = {"list": [1]}
    log.append("k", data)
    data["list"].append(2)
    assert (await log.read())[0].data == {"list": [1]}
    with pytest.raises(TypeError):
        log.append("k", {"x": object()})
    assert log.statistics()["seq"] == 1


async def test_log_is_bounded_and_says_what_it_dropped() -> None:
    log = TransientLog(lambda: 0, max_entries=3)
    for i in range(5):
        log.append("k", {"i": i})
    assert [e.seq for e in await log.read()] == [3, 4, 5]
    assert log.seq == 5
    assert log.statistics() == {"seq": 5, "entries": 3, "dropped": 2, "listeners": 0}


async def test_listeners_hear_until_they_leave_and_a_broken_one_is_removed() -> None:
    log = TransientLog(lambda: 0)
    heard: list[int] = []

    def broken(_: object) -> None:
        raise RuntimeError("mine")

    log.subscribe(broken)
    leave = log.subscribe(lambda entry: heard.append(entry.seq))
    log.append("k", {})
    log.append("k", {})
    leave()
    leave()
    log.append("k", {})
    assert heard == [1, 2]
    assert log.statistics()["listeners"] == 0
