"""Readers of a log: every fact once and in order, only durable ones, and why the reading ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from memory.store.session import DurableSession, SessionInfo
from memory.store.store import Store
from orchestrator.tail import Bells, Tail
from tests.fakes.clock import VirtualClock


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Store, Bells, DurableSession]]:
    store = await Store.open(f"sqlite:///{folder}/vigil.db", folder, now_ms=VirtualClock().wall_ms)
    session = await store.create("s", tenant="t", model="m", pack_digest="d", renderer=1)
    bells = Bells()
    session.log.subscribe(lambda entry: bells.ring("s", entry.seq))
    yield store, bells, session
    await store.close()


async def read(tail: Tail, idle_s: float = 60.0) -> list[int]:
    """All numbers up to the end of the reading."""
    async with asyncio.timeout(60), aclosing(tail.pages(idle_s)) as pages:
        return [entry.seq async for page in pages for entry in page]


@pytest.mark.parametrize("after", [0, 7, 20, 99])
async def test_each_fact_once_while_others_are_appended(tmp_path: Path, after: int) -> None:
    """Contract: appends between the backlog and the live part are neither lost nor doubled."""
    async with opened(tmp_path) as (store, bells, session):
        for _ in range(20):
            session.log.append("fact", {})
        reading = asyncio.create_task(read(Tail(store, bells, "s", after)))
        for _ in range(30):
            for _ in range(3):
                session.log.append("fact", {})
            await asyncio.sleep(0)
        await session.close()
        await session.release()
        bells.ring("s")
        assert await reading == list(range(after + 1, 111))


async def test_only_what_is_durable_is_given_out(tmp_path: Path) -> None:
    """Contract: a crash never takes back what a reader has seen."""
    async with opened(tmp_path) as (store, bells, session):
        session.log.append("fact", {})
        async with asyncio.timeout(60), aclosing(Tail(store, bells, "s", 0).pages(60.0)) as pages:
            for seq in range(1, 6):
                (entry,) = await anext(pages)
                assert session.log.statistics()["durable"] >= entry.seq == seq
                session.log.append("fact", {})


async def test_why_a_reading_ends(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, session):
        session.log.append("fact", {})
        caught_up = Tail(store, bells, "s", 0, follow=False)
        assert (await read(caught_up), caught_up.reason) == ([1], "caught_up")
        following = Tail(store, bells, "s", 0)
        reading = asyncio.create_task(read(following))
        await session.close()
        await session.release()
        bells.ring("s")
        assert (await reading, following.reason) == ([1], "session_closed")
        await store.delete("s")
        gone = Tail(store, bells, "s", 0)
        assert (await read(gone), gone.reason) == ([], "deleted")


async def test_the_last_fact_is_told_where_it_comes_while_the_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract: a record read before the last fact is no reason to end, whoever let the session go since."""
    async with opened(tmp_path) as (store, bells, session):
        session.log.append("fact", {})
        await session.close()
        looked_up = store.info

        async def info(session_id: str) -> SessionInfo:
            found = await looked_up(session_id)
            if store.is_open(session_id):
                session.log.append("last", {})
                await session.release()
                bells.ring("s")
            return found

        monkeypatch.setattr(store, "info", info)
        assert await read(Tail(store, bells, "s", 0)) == [1, 2]


async def test_a_stop_ends_readers_that_wait_and_those_that_come(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, _):
        tails = [Tail(store, bells, "s", 0) for _ in range(2)]
        waiting = asyncio.create_task(read(tails[0]))
        await asyncio.sleep(0)
        bells.stop()
        assert await waiting == await read(tails[1]) == []
        assert {tail.reason for tail in tails} == {"shutdown"}


async def test_a_session_closed_by_another_process_is_noticed_in_a_pause(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, session):
        await session.release()
        other = await Store.open(f"sqlite:///{tmp_path}/vigil.db", tmp_path, now_ms=VirtualClock().wall_ms)
        tail = Tail(store, bells, "s", 0)
        async with asyncio.timeout(60), aclosing(tail.pages(0.01)) as pages:
            assert await anext(pages) == ()
            await (await other.session("s")).close()  # no bell rings here
            await other.close()
            assert [page async for page in pages if page] == []
        assert tail.reason == "session_closed"


async def test_how_far_a_live_reader_is_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, session):
        session.log.append("fact", {})
        tail = Tail(store, bells, "s", 0)
        async with asyncio.timeout(60), aclosing(tail.pages(0.01)) as pages:
            await anext(pages)
            assert tail.behind == 0
            assert await anext(pages) == ()
            for _ in range(5):
                session.log.append("fact", {})
            assert tail.behind == 5
            await anext(pages)
            assert tail.behind == 0


async def test_nothing_is_kept_of_readers_that_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, bells, _):
        async with aclosing(Tail(store, bells, "s", 0).pages(0.001)) as pages:
            await anext(pages)
            assert bells._bells
        assert not bells._bells
