"""Engines that hold a single session: a conversation changes over to another one, where there is one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.client import VigilClient
from prompts.native import Horizon, Seed
from prompts.native_loader import native_profile
from tests.native.serving import FAMILY, NativeServed, reference
from tests.realtime.serving import eventually

SECOND = b"\x00\x00" * 16000
SCALE = 20.0
PROFILE = replace(
    native_profile(FAMILY), max_sessions=1, horizon=Horizon(1440, 12.0, 64, 40, Seed.INSTRUCTIONS, 256)
)


@pytest.mark.parametrize("engines", [1, 2])
async def test_a_full_context_is_left_for_a_place_that_is_there(tmp_path: Path, engines: int) -> None:
    """With one engine its session is closed first; with two the next one is open before that."""
    notices: list[str] = []
    async with NativeServed(
        tmp_path, "listen", engines=engines, max_sessions=1, profile=PROFILE, scale=SCALE
    ) as served:
        opening = {"ref_audio": reference(), "extra_body": {"auto_response": True}}
        async with VigilClient(served.url, session=opening) as client:

            async def read() -> None:
                async for event in client.events():
                    if event.type == "vigil.notice":
                        notices.append(event.message)

            reading = asyncio.create_task(read())
            async with asyncio.timeout(60):
                while not notices:
                    await client.append(pcm=SECOND)
                    await served.clock.sleep(1)
            held = [len(engine.sessions) for engine in served.engines]
            assert held == ([2] if engines == 1 else [1, 1])
            await eventually(lambda: sum(len(engine.live) for engine in served.engines) == 1)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    assert notices[0].startswith("the conversation goes on from memory in a fresh engine session")
