"""A service dies under a recording that is being played to it, or does not open a session at all.

Contract: what came until then is returned, to be written, and the session row says that it was lost.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from orchestrator.offline.command import Offline, run
from orchestrator.offline.drive import PlayOptions, play
from orchestrator.wire.audio import write_wav
from tests.fakes.speaker import tone
from tests.native.serving import ORDER, NativeServed


async def dying(socket: ServerConnection) -> None:
    """Open a session, say a tenth of a second, and be gone."""
    await socket.recv()
    audio = {"delta": base64.b64encode(tone(100)).decode(), "sample_rate_hz": 24000, "format": "pcm16"}
    part = {"response_id": "r", "item_id": "item_r", "output_index": 0, "content_index": 0}
    said: list[dict[str, Any]] = [
        {"type": "session.created", "session": {"id": "s"}},
        {"type": "session.updated", "session": {"id": "s"}},
        {"type": "response.created", "response_id": "r", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_audio.delta", **part, **audio},
    ]
    for number, event in enumerate(said):
        sequence = {"server_event_seq": number} if number else {}
        await socket.send(json.dumps({"event_id": f"event_{number}", **event, **sequence}))
    await socket.recv()
    socket.transport.abort()


async def test_what_came_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.client.client.RESUME_S", 2.0)
    async with serve(dying, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(60):
            played = await play([ORDER], PlayOptions(url))
    assert not played.ok and not played.drained
    assert played.heard.any()
    assert played.rows[-1]["closed"] is None
    (why,) = (each for each in played.against if "lost" in each)
    assert "connection" in why


async def test_a_model_that_wants_a_voice_to_speak_with_is_told_of_by_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.wav").write_bytes(write_wav(ORDER.samples, ORDER.rate_hz))
    async with NativeServed(tmp_path) as served:
        offline = Offline((tmp_path / "in.wav",), tmp_path / "out.wav", PlayOptions(served.url))
        assert await asyncio.to_thread(run, offline) == 1
    assert "--ref-audio" in capsys.readouterr().err
