"""A service with a summarizer before a full-duplex engine: what a camera showed is known to the next engine
session in words."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_launch.client import picture
from orchestrator.client import VigilClient
from orchestrator.session_cli import memory_lines
from prompts.native import Horizon, Seed
from prompts.native_loader import native_profile
from tests.fakes.engine import FakeEngine
from tests.native.serving import FAMILY, NativeServed, reference
from tests.realtime.serving import eventually

SEEN = "A red kettle stands on the left burner; its display reads 88."
SECOND = b"\x00\x00" * 16000
SCALE = 20.0


def small() -> Any:
    """A context that is full after two minutes."""
    return replace(native_profile(FAMILY), horizon=Horizon(2400, 12.0, 1, 40, Seed.INSTRUCTIONS, 600))


async def show(client: VigilClient, served: NativeServed, seconds: int) -> None:
    for second in range(seconds):
        await client.append(pcm=SECOND, frames=[picture(second % 3, 64)])
        await served.clock.sleep(1)


async def test_what_was_seen_is_told_to_the_next_engine_session(tmp_path: Path) -> None:
    async with (
        FakeEngine(model="writer", summaries=[SEEN], summary_tokens=16, image_tokens=64) as writer,
        NativeServed(
            tmp_path,
            "listen",
            profile=small(),
            scale=SCALE,
            summarizer={"url": writer.url, "model": "writer", "api_key": "k"},
        ) as served,
    ):
        opening = {"ref_audio": reference(), "extra_body": {"auto_response": True}}
        async with VigilClient(served.url, session=opening) as client:
            (engine,) = served.engines
            async with asyncio.timeout(60):
                while len(engine.sessions) < 2:
                    await show(client, served, 10)
            asked = [seen for seen in writer.chats if seen.images]
            assert asked and all(1 <= len(seen.images) <= 8 for seen in asked)
            assert {seen.json["model"] for seen in asked} == {"writer"}
            assert all(seen.headers["authorization"] == "Bearer k" for seen in asked)
            assert SEEN in engine.sessions[1].opening.instructions

            told = (await served.client.get(f"/v1/sessions/{client.session_id}/memory")).json()
            assert any(line["who"] == "frames" and line["text"] == SEEN for line in told["talk"])
            assert any(SEEN in line for line in memory_lines(told))
            metrics = (await served.client.get("/metrics")).text
            assert 'vigil_summarizer_texts_total{outcome="written"}' in metrics


async def test_a_summarizer_that_is_away_costs_nothing_but_the_words(tmp_path: Path) -> None:
    async with NativeServed(
        tmp_path, "listen", scale=SCALE, summarizer={"url": "http://127.0.0.1:9", "model": "writer"}
    ) as served:
        opening = {"ref_audio": reference(), "extra_body": {"auto_response": True}}
        async with VigilClient(served.url, session=opening) as client:
            await show(client, served, 70)
            (session,) = served.engines[0].sessions
            await eventually(lambda: len(session.units) >= 68)
            told = (await served.client.get(f"/v1/sessions/{client.session_id}/memory")).json()
            (line,) = told["talk"]
            assert line["who"] == "frames" and line["frames"] >= 68 and line["text"] == ""
            assert (await served.client.get("/ready")).status_code == 200
