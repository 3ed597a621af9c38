"""Real processes in front of a full-duplex engine, killed with SIGKILL while the model speaks.

Contract: the session goes on for its client, in another process or after a restart, under the same id, with
the voice it was opened with; the engine is left with one session for it; event numbers
never go back, and the client is told that events may be missing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from evals.bench.stand import serving
from tests.engine_launch.real_engine import free_port
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine
from tests.fakes.postgres import PrivatePostgres
from tests.native.serving import FAMILY, reference
from tests.realtime.serving import eventually
from tests.realtime.talker import Event, Talker

HEARTBEAT_S, LIFE_S = 0.2, 1.0
OPENING = {"modalities": ["audio", "text"], "ref_audio": reference(), "extra_body": {"auto_response": True}}


@asynccontextmanager
async def service(folder: Path, engine: DuplexEngine, *flags: str) -> AsyncIterator[tuple[str, int]]:
    """Address and process id of a service of its own, over the data of that folder."""
    own = folder / f"process-{free_port()}"
    own.mkdir()
    flags = ("--family", FAMILY, "--data", str(folder / "data"), *flags)
    async with serving(own, engine.url, flags) as (process, url, _):
        yield url, process.pid


async def talk(talker: Talker, seconds: int) -> None:
    """So much speech, in real time."""
    for _ in range(5 * seconds):
        await talker.speech(200)
        await asyncio.sleep(0.2)


async def resume(talker: Talker, former: Talker) -> Event:
    """As clients do, until the life of the process that had it is over."""
    async with asyncio.timeout(60):
        while True:
            await talker.send(
                "session.resume",
                session_id=former.session_id,
                resume_token=former.token,
                last_received_server_event_seq=former.last_seq,
            )
            while (event := await talker.next())["type"] not in ("session.resumed", "error"):
                pass
            if event["type"] == "session.resumed":
                return event
            assert event["error"].get("retryable"), event
            await asyncio.sleep(event["error"].get("retry_after_s") or 0.2)


async def gone_on(talker: Talker, former: Talker, engine: DuplexEngine) -> None:
    resumed = await resume(talker, former)
    assert resumed["session"]["id"] == former.session_id and resumed["journal_gap"] is True
    await eventually(lambda: len(engine.live) == 1)
    assert engine.live[0].opening.raw["ref_audio"] == reference()
    speaking = asyncio.create_task(talk(talker, 12))
    await talker.until("response.output_audio.delta")
    await talker.until("response.done")
    speaking.cancel()
    numbers = [event["server_event_seq"] for event in talker.seen if "server_event_seq" in event]
    assert numbers == sorted(set(numbers)) and numbers[0] > former.last_seq
    responses = {event["response"]["id"] for event in talker.of("response.created")}
    assert not responses & {event["response"]["id"] for event in former.of("response.created")}


async def until_it_speaks(talker: Talker) -> None:
    speaking = asyncio.create_task(talk(talker, 12))
    await talker.until("response.output_audio.delta")
    speaking.cancel()


async def broken(talker: Talker) -> None:
    with pytest.raises(ConnectionClosed):
        while True:
            await talker.next()


async def test_another_process_goes_on_with_it(postgres: PrivatePostgres, tmp_path: Path) -> None:
    url = postgres.empty_database()
    shared = ("--store-url", url, "--store-heartbeat-s", str(HEARTBEAT_S), "--store-life-s", str(LIFE_S))

    def flags() -> tuple[str, ...]:
        port = free_port()
        return (*shared, "--port", str(port), "--advertise", f"http://127.0.0.1:{port}")

    async with (
        DuplexEngine("pattern:LLSE", MINICPM_LIKE, max_sessions=4, grace_s=3.0) as engine,
        service(tmp_path, engine, *flags()) as (one, pid),
        service(tmp_path, engine, *flags()) as (other, _),
        Talker(one, opening=OPENING) as talker,
    ):
        await until_it_speaks(talker)
        os.kill(pid, signal.SIGKILL)
        await broken(talker)
        async with Talker(other) as again:
            await gone_on(again, talker, engine)


async def test_the_same_goes_on_after_its_restart(tmp_path: Path) -> None:
    async with DuplexEngine("pattern:LLSE", MINICPM_LIKE, max_sessions=4, grace_s=3.0) as engine:
        async with service(tmp_path, engine) as (one, pid), Talker(one, opening=OPENING) as talker:
            await until_it_speaks(talker)
            os.kill(pid, signal.SIGKILL)
            await broken(talker)
        async with service(tmp_path, engine) as (anew, _), Talker(anew) as again:
            await gone_on(again, talker, engine)
