"""A service dies under a recording that is being played to it.

Contract: what came until then is returned, to be written, and the session row says that it was lost.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from orchestrator.offline.drive import PlayOptions, play
from tests.fakes.speaker import tone
from tests.native.serving import ORDER


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


async def test_what_came_is_returned() -> None:
    async with serve(dying, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(20):
            played = await play([ORDER], PlayOptions(url))
    assert not played.ok and not played.drained
    assert played.heard.any()
    assert played.rows[-1]["closed"] is None
    (why,) = (each for each in played.against if "lost" in each)
    assert "connection" in why
