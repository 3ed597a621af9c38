"""Malformed and reordered events, thousands of them: a typed error each, and nothing breaks, leaks or grows.

The same frames go over real sockets in larger numbers with ``make bench-fuzz``.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from evals.bench.mutants import Mutants
from evals.bench.prober import NO_PICTURE, Prober, Report
from orchestrator.runtime.clock import system_ids
from orchestrator.session.backend import SessionConfig
from orchestrator.session.intake import Intake
from orchestrator.wire.client import parse_command
from orchestrator.wire.errors import ServerFault, VigilError
from tests.api.serving import Served
from tests.fakes.babbler import Babbler
from tests.fakes.engine import FakeEngine
from tests.fakes.pictures import jpeg, png
from tests.realtime.serving import MODEL, VOICE, Scripted, eventually
from tests.realtime.talker import Talker

pytestmark = pytest.mark.timeout(400)  # about 25 s, but more on a busy machine

PICTURES = [*(jpeg(n) for n in range(4)), png(4), NO_PICTURE]
FAST: dict[str, Any] = {"auth": {"required": False, "quota": {"events_per_second": 100_000}}}


def route(url: str) -> str:
    return f"ws{url.removeprefix('http')}/v1/realtime"


def unharmed(report: Report, sent: int) -> None:
    assert report.findings == []
    assert report.sent == sent
    assert report.resumes > 0
    assert {"bad_event", "invalid_json", "unknown_event", "item_not_found"} <= set(report.errors)


def test_every_frame_is_a_command_or_a_typed_refusal() -> None:
    mutants, intake = Mutants(7, PICTURES, audio=True), Intake(SessionConfig(MODEL), VOICE, system_ids)
    outcomes: Counter[str] = Counter()
    for n in range(20_000):
        frame = mutants.frame()
        try:
            intake.commands(parse_command(frame), n / 100)
        except VigilError as refused:
            assert not isinstance(refused, ServerFault), frame
            outcomes["refused"] += 1
        else:
            outcomes["taken"] += 1
    assert outcomes["taken"] > 5_000 < outcomes["refused"]


@pytest.mark.parametrize("auto_response", [True, False])
async def test_a_voice_session_under_fire(auto_response: bool) -> None:
    """The client hears and is heard meanwhile: barge-in, playback and truncation are hit as well."""
    opening = {"modalities": ["text", "audio"], "extra_body": {"auto_response": auto_response}}
    async with Scripted(make=Babbler) as server:
        mutants = Mutants(11, [NO_PICTURE], audio=True)
        unharmed(await Prober(route(server.url), mutants, opening).run(3000), 3000)
        await eventually(lambda: not server.registry.sessions())


async def test_a_watching_session_under_fire_and_its_neighbour(tmp_path: Path) -> None:
    """The real backend. A neighbour's session answers before, during and after as if it were alone."""
    async with (
        FakeEngine(lambda seen: f"<response> A dog, {seen.tick}.") as engine,
        Served(engine, tmp_path, **FAST) as served,
    ):
        tasks = len(asyncio.all_tasks())
        async with Talker(served.url, opening={}) as neighbour:
            await neighbour.ask("what is there?")
            mutants = Mutants(13, PICTURES, audio=False)
            prober = Prober(route(served.url), mutants, {"include": ["vigil.tick"]})
            fire = asyncio.create_task(prober.run(3000))
            frames = 0
            while not fire.done():
                await neighbour.show(jpeg(frames), frame_id=f"f-{frames}")
                frames += 1
                await neighbour.until("response.done")
            unharmed(await fire, 3000)
            (session,) = await eventually(lambda: _only(served))
            assert neighbour.of("error") == []
            assert int(str(session.statistics()["pending_input_bytes"])) == 0
            await neighbour.send("session.close")
            await neighbour.until("session.closed")
        await eventually(lambda: not served.core.registry.statistics()["slots"])
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks)


def _only(served: Served) -> Any:
    sessions = served.core.registry.sessions()
    return sessions if len(sessions) == 1 else None


async def test_sockets_that_begin_wrongly_end_with_one_error() -> None:
    """Whatever comes first: a session, or exactly one error and a close that says why. None is left over."""
    mutants = Mutants(17, [NO_PICTURE], audio=True)
    chance = random.Random(17)
    async with Scripted() as server:
        for _ in range(150):
            query = chance.choice(
                ["", "?duplex=1", "?autostart=0", "?duplex=maybe", f"?model={MODEL}", "?model=x"]
            )
            async with connect(route(server.url) + query, compression=None, proxy=None) as socket:
                with suppress(ConnectionClosed):  # refused before it had said anything
                    await socket.send(mutants.frame())
                first = orjson.loads(await socket.recv())
                if first["type"] == "session.created":
                    await socket.send('{"type":"session.close"}')
                    continue
                assert first["type"] == "error", first
                assert first["error"]["type"] != "server_error", first
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1008
        await eventually(lambda: not server.registry.sessions())
