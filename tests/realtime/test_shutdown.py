"""SIGTERM while clients are connected: a real process, its sessions told over their own sockets."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.api.test_serving import command
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.realtime.talker import Talker


async def test_what_is_being_said_is_finished_and_every_client_is_told(tmp_path: Path) -> None:
    def long(seen: Seen) -> str:
        return "<response> " + " ".join(map(str, range(40)))

    async with FakeEngine(long, pace=Pace(per_token_s=0.02)) as engine:
        flags = ("--engine", engine.url, "--data", str(tmp_path), "--no-decision-gate")
        async with command(*flags) as (process, client):
            url = str(client.base_url).rstrip("/")
            async with (
                Talker(url, opening={}) as speaking,
                Talker(url, opening={}) as idle,
                Talker(url) as new,
            ):
                await speaking.ask("count")
                await speaking.until("response.output_text.delta")
                process.send_signal(signal.SIGTERM)
                assert await idle.closed() == (1000, "shutdown")
                assert await speaking.closed() == (1000, "shutdown")
                (done,) = speaking.of("response.done")
                assert done["response"]["status"] == "completed"
                assert done["response"]["output"][0]["content"][0]["text"].endswith(" 39")
                assert speaking.types[-1] == "session.closed"
                assert (await new.closed())[0] == 1012
            _, rest = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, rest
            assert b"Traceback" not in rest
