"""Two services in front of one full-duplex engine, which holds sessions of its own.

Its places are shared, and a session that changes its service leaves nothing behind at the engine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.client import ClientError, VigilClient
from tests.engine_launch.real_engine import free_port
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine
from tests.fakes.postgres import PrivatePostgres
from tests.native.serving import MODEL, NativeServed, reference
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

HEARTBEAT_S, LIFE_S = 0.2, 1.0


def opening() -> dict[str, Any]:
    return {"modalities": ["audio", "text"], "ref_audio": reference()}


class Member(NativeServed):
    def __init__(self, engine: DuplexEngine, folder: Path, url: str, places: int) -> None:
        self.port = free_port()
        address = f"http://127.0.0.1:{self.port}"
        super().__init__(
            folder,
            elsewhere=(engine.url, MODEL),
            max_sessions=places,
            advertise=address,
            store={"url": url, "heartbeat_s": HEARTBEAT_S, "life_s": LIFE_S},
        )

    def live(self) -> list[str]:
        return [session.id for session in self.core.registry.sessions() if session.is_open]


@asynccontextmanager
async def members(
    postgres: PrivatePostgres, folder: Path, places: int
) -> AsyncIterator[tuple[DuplexEngine, list[Member]]]:
    url = postgres.empty_database()
    async with DuplexEngine("listen", MINICPM_LIKE, max_sessions=places) as engine, AsyncExitStack() as stack:
        yield engine, [await stack.enter_async_context(Member(engine, folder, url, places)) for _ in range(2)]


async def test_the_engines_places_are_shared_and_one_is_left_to_roll_over_on(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    async with members(postgres, tmp_path, 3) as (engine, (one, other)):
        assert one.track.pool.capacity == 2
        async with VigilClient(one.url, session=opening()):
            await eventually(lambda: other.track.pool.beside == 1)
            async with VigilClient(other.url, session=opening()):
                await eventually(lambda: one.track.pool.beside == 1)
                for each in (one, other):
                    with pytest.raises(ClientError) as refused:
                        async with VigilClient(each.url, session=opening()):
                            pass
                    assert refused.value.code == "resource_exhausted"
                assert len(engine.live) == 2
            await eventually(lambda: one.track.pool.beside == 0)
            async with VigilClient(one.url, session=opening()):
                assert len(engine.live) == 2
        await eventually(lambda: len(engine.live) == 0)


async def resume(talker: Talker, former: Talker) -> dict[str, Any]:
    await talker.send(
        "session.resume",
        session_id=former.session_id,
        resume_token=former.token,
        last_received_server_event_seq=former.last_seq,
    )
    return await talker.until("session.resumed")


async def test_an_owner_that_misses_its_life_is_followed_and_leaves_its_place(
    postgres: PrivatePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the voice that it was opened with, which no client sends twice."""

    async def no_beat() -> None:
        pass

    async with (
        members(postgres, tmp_path, 4) as (engine, (one, other)),
        Talker(one.url, opening=opening()) as talker,
    ):
        owning = one.core.owning
        assert owning is not None
        await one.core.registry.get(talker.session_id).seated()  # type: ignore[union-attr]
        with monkeypatch.context() as patch:
            patch.setattr(owning, "beat", no_beat)
            await asyncio.sleep(LIFE_S + 3 * HEARTBEAT_S)
            async with Talker(other.url) as again:
                assert (await resume(again, talker))["journal_gap"] is True
                assert other.live() == [talker.session_id] and owning.lost == 0
                patch.undo()
                closed = await talker.until("session.closed")
                assert closed["reason"] == "lease_lost" and owning.lost == 1
                await eventually(lambda: not one.live() and len(engine.live) == 1)
                assert other.live() == [talker.session_id]
                assert engine.live[0].opening.raw["ref_audio"] == reference()


@contextmanager
def standing_still(postgres: PrivatePostgres) -> Iterator[None]:
    """Neither the server nor who works for a connection does anything."""
    main = int((postgres.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    held = [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)


async def test_a_database_that_stands_still_for_three_lives_costs_no_session(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    """Who asks for it elsewhere meanwhile waits, and then finds it in one place."""
    async with (
        members(postgres, tmp_path, 3) as (engine, (one, other)),
        Talker(one.url, opening=opening()) as talker,
        Talker(other.url) as again,
    ):
        await one.core.registry.get(talker.session_id).seated()  # type: ignore[union-attr]
        with standing_still(postgres):
            resumed = asyncio.create_task(resume(again, talker))
            await asyncio.sleep(3 * LIFE_S)
            assert one.live() == [talker.session_id] and not resumed.done()
        assert (await resumed)["session"]["id"] == talker.session_id
        await asyncio.sleep(LIFE_S)
        assert [*one.live(), *other.live()] == [talker.session_id] and len(engine.live) == 1


async def test_connections_to_the_database_that_are_cut_again_and_again_cost_no_session(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    async with (
        members(postgres, tmp_path, 3) as (engine, (one, other)),
        Talker(one.url, opening=opening()) as talker,
    ):
        with psycopg.connect(f"postgresql://vigil@/postgres?host={postgres.folder}", autocommit=True) as own:
            for _ in range(10):
                await asyncio.to_thread(own.execute, cut + " AND backend_type = 'client backend'")
                await asyncio.sleep(HEARTBEAT_S * 0.7)
        await asyncio.sleep(LIFE_S)
        assert one.live() == [talker.session_id] and not other.live() and len(engine.live) == 1
        async with VigilClient(other.url, session=opening()):
            assert len(engine.live) == 2


class Line:
    """The way of one service to the database, which can be cut without a word."""

    def __init__(self, postgres: PrivatePostgres, folder: Path) -> None:
        self._socket = f"{postgres.folder}/.s.PGSQL.5432"
        self._folder = folder
        self.whole = asyncio.Event()
        self.whole.set()

    @property
    def url(self) -> str:
        return f"postgresql://vigil@/postgres?host={self._folder}"

    async def __aenter__(self) -> Line:
        self._server = await asyncio.start_unix_server(self._carry, f"{self._folder}/.s.PGSQL.5432")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.whole.set()
        self._server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, to_them = await asyncio.open_unix_connection(self._socket)
        await asyncio.gather(self._pipe(reader, to_them), self._pipe(theirs, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(2**16):
                await self.whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


async def test_a_service_that_alone_lost_the_database_does_not_keep_its_sessions(
    postgres: PrivatePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they have nothing to write, by which they would notice."""
    monkeypatch.setattr("orchestrator.owning.UNSURE_S", 1.0)
    url = postgres.empty_database()
    with tempfile.TemporaryDirectory(prefix="vigil-line-") as folder:
        async with (
            Line(postgres, Path(folder)) as line,
            DuplexEngine("listen", MINICPM_LIKE, max_sessions=4) as engine,
            Member(engine, tmp_path, line.url, 4) as one,
            Member(engine, tmp_path, url, 4) as other,
            Talker(one.url, opening=opening()) as talker,
            Talker(other.url) as again,
        ):
            await one.core.registry.get(talker.session_id).seated()  # type: ignore[union-attr]
            line.whole.clear()
            await asyncio.sleep(LIFE_S + HEARTBEAT_S)
            assert (await resume(again, talker))["session"]["id"] == talker.session_id
            closed = await talker.until("session.closed")
            assert closed["reason"] == "lease_lost"
            await eventually(lambda: not one.live() and len(engine.live) == 1)
            line.whole.set()
            owning = one.core.owning
            assert owning is not None
            await owning.beat()
            assert other.live() == [talker.session_id] and not one.live()
            await again.send("session.heartbeat")
            await again.until("session.heartbeat_ack")


async def test_sessions_that_ended_because_the_database_was_away_go_on_where_they_are_asked_for(
    postgres: PrivatePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.owning.UNSURE_S", 0.5)
    async with (
        members(postgres, tmp_path, 3) as (engine, (one, other)),
        Talker(one.url, opening=opening()) as talker,
    ):
        await one.core.registry.get(talker.session_id).seated()  # type: ignore[union-attr]
        with standing_still(postgres):
            assert (await talker.until("session.closed"))["reason"] == "lease_lost"
        await eventually(lambda: not engine.live)
        async with Talker(other.url) as again:
            assert (await resume(again, talker))["session"]["id"] == talker.session_id
            assert [*one.live(), *other.live()] == [talker.session_id] and len(engine.live) == 1
