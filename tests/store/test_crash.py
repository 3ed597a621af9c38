"""kill -9 in the middle of writing: the log that is left is a clean prefix with everything flushed in it."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from memory.store.store import Store
from tests.store.conftest import Stores, new_session

NAMES = ("s0", "s1", "s2")


async def killed_after(lines: int, url: str, folder: Path) -> dict[str, int]:
    """Run the writer until it has flushed ``lines`` times, kill it; returns what it relied on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.crash_writer", url, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    relied_on = dict.fromkeys(NAMES, 0)
    async with asyncio.timeout(150):
        number = 0
        # What was relied on is a whole line; the kill may have cut the last one.
        while (line := (await process.stdout.readline()).decode()).endswith("\n"):
            name, seq = line.split()
            relied_on[name] = int(seq)
            number += 1
            if number == lines:
                process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
    return relied_on


async def check(store: Store, relied_on: dict[str, int]) -> None:
    for name in NAMES:
        session = await store.session(name)
        entries = await session.log.read()
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1)), "a gap"
        assert len(entries) >= relied_on[name], "a flushed fact was lost"
        for before, entry in zip(entries[::2], entries[1::2], strict=False):
            assert (before.kind, entry.kind) == ("frame_seen", "tick_answered")
            assert entry.data["after"] == before.data["uuid"]
        for entry in entries[::2]:
            uuid = entry.data["uuid"]
            assert session.frames.get(uuid) == uuid.encode() * 5000, "a frame that a fact names"
        assert len(entries) % 2 == 0, "facts appended together were written apart"


@pytest.mark.parametrize("lines", [1, 20, 61])
async def test_killed_while_writing(lines: int, url: str, stores: Stores, store: Store) -> None:
    for name in NAMES:
        await new_session(store, name)
        await (await store.session(name)).release()
    relied_on = await killed_after(lines, url, stores.folder)
    await check(await stores.open(), relied_on)
    # And again on what the first crash left.
    before = {name: (await store.info(name)).last_seq for name in NAMES}
    relied_on = await killed_after(lines, url, stores.folder)
    await check(await stores.open(), relied_on)
    assert all(relied_on[name] == 0 or relied_on[name] > before[name] for name in NAMES)
