"""A service that ends, killed or in order, and is started anew: its clients notice a pause, and nothing else.

Contract: the client finds the same session again by itself, with what it was shown before; what it sends
meanwhile waits and arrives once.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from evals.bench.stand import serving
from orchestrator.client import ConnectionResumed, VigilClient
from orchestrator.wire import server as wire
from tests.client.test_client import counts, until
from tests.engine_launch.real_engine import free_port
from tests.fakes.engine import FakeEngine
from tests.fakes.pictures import jpeg


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_its_clients_find_their_sessions_again(tmp_path: Path, number: signal.Signals) -> None:
    flags = ("--port", str(free_port()), "--family", "joyvl", "--no-decision-gate")
    async with FakeEngine(counts) as engine:
        async with serving(tmp_path, engine.url, flags) as (process, url, _):
            vigil = await VigilClient(url, jitter=lambda: 0.0).__aenter__()
            session_id = vigil.session_id
            await vigil.append(frames=[jpeg(1, 224, 224)], frame_times_ms=[0])
            await until(vigil, wire.ResponseDone)
            process.send_signal(number)
            await process.wait()
        meanwhile = asyncio.create_task(vigil.append(frames=[jpeg(2, 224, 224)], frame_times_ms=[1000]))
        async with serving(tmp_path, engine.url, flags):
            await until(vigil, ConnectionResumed)
            await meanwhile
            await until(vigil, wire.ResponseDone)
            assert vigil.session_id == session_id
            await vigil.close()
        shown = [seen for seen in engine.chats if seen.kind == "decide"]
    assert [len(seen.images) for seen in shown] == [1, 2]
