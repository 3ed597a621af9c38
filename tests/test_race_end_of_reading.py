"""Contract: a reader hears a session's last fact, and then why it ends.

A session's end is recorded while its last fact is still to come, and a deletion ends the session first. So
readers go on until nobody has the session open any more; and while it is being deleted, an end is not the
reason. Whatever the order of reading and deleting: ``deleted`` after a deletion, ``session_closed`` after an
end, also after one that a failed deletion brought about.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from memory.store.errors import StoreError
from memory.store.session import SessionInfo
from memory.store.store import Store
from orchestrator.tail import Bells, Tail
from tests.test_tail import opened


class Reading:
    """Reads a session to its end, looking again every few milliseconds."""

    def __init__(self, store: Store, bells: Bells) -> None:
        self.tail = Tail(store, bells, "s", 0)
        self.seen: list[int] = []
        self._looked = asyncio.Semaphore(0)
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aclosing(self.tail.pages(0.002)) as pages:
            async for page in pages:
                self.seen += [entry.seq for entry in page]
                self._looked.release()

    async def looks(self) -> None:
        """Return once it has looked at all there is now, and reads on."""
        async with asyncio.timeout(60):
            while not self._looked.locked():
                await self._looked.acquire()
            for _ in range(2):
                await self._looked.acquire()

    async def end(self) -> tuple[list[int], str | None]:
        await asyncio.wait_for(self._task, 60)
        return self.seen, self.tail.reason


async def test_the_last_fact_comes_after_the_record_of_the_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, session):
        reading = Reading(store, bells)
        await session.close()
        bells.ring("s")
        await reading.looks()
        session.log.append("session_ended", {"reason": "reset"})
        await session.release()
        bells.ring("s")
        assert await reading.end() == ([1], "session_closed")


@pytest.mark.parametrize("join", ["before", "while_closed", "while_deleting"])
async def test_a_deletion_is_told_as_one(tmp_path: Path, join: str) -> None:
    async with opened(tmp_path) as (store, bells, session):
        session.log.append("fact", {})
        reading = Reading(store, bells) if join == "before" else None
        if reading:
            await reading.looks()
        with bells.deleting("s"):
            await session.close()
            await session.release()
            bells.ring("s")
            if join == "while_closed":
                reading = Reading(store, bells)
            if reading:
                await reading.looks()
            await store.delete("s")
            if join == "while_deleting":
                reading = Reading(store, bells)
        assert reading is not None
        assert await reading.end() == ([] if join == "while_deleting" else [1], "deleted")


async def test_a_reader_that_looked_just_before_is_told_of_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it read says closed; by the time it looks up from it, the session is deleted."""
    async with opened(tmp_path) as (store, bells, session):
        looked, held = asyncio.Event(), asyncio.Event()
        info = store.info

        async def slow(session_id: str) -> SessionInfo:
            found = await info(session_id)
            if found.closed_ms is not None:
                looked.set()
                await held.wait()
            return found

        monkeypatch.setattr(store, "info", slow)
        reading = Reading(store, bells)
        with bells.deleting("s"):
            await session.close()
            await session.release()
            bells.ring("s")
            await looked.wait()
            await store.delete("s")
        held.set()
        assert await reading.end() == ([], "deleted")


async def test_a_deletion_that_fails_leaves_an_ended_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, session):
        reading = Reading(store, bells)
        with pytest.raises(StoreError), bells.deleting("s"):
            await session.close()
            await session.release()
            bells.ring("s")
            await reading.looks()
            raise StoreError("the disk is full")
        assert await reading.end() == ([], "session_closed")
