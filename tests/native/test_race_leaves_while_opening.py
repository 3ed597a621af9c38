"""A client leaves while its session opens at an engine that accepts sockets and says nothing.

Contract: the session is gone with the client, long before the engine's time to open is over; the engine's
place stays taken only as long as the engine may hold what it was asked to open.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.native.serving import MODEL, NativeServed
from tests.realtime.serving import eventually


async def test_nothing_but_the_engines_place_outlives_the_client(tmp_path: Path) -> None:
    heard: list[str | bytes] = []

    async def mute(socket: ServerConnection) -> None:
        async for message in socket:
            heard.append(message)

    async with serve(mute, "127.0.0.1", 0) as engine:
        port = engine.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with NativeServed(tmp_path, elsewhere=(url, MODEL)) as served:
            figures = served.track.pool.statistics
            address = served.url.replace("http", "ws") + "/v1/realtime?duplex=1&autostart=0"
            async with connect(address) as client:
                await client.send('{"type": "session.update", "session": {"modalities": ["text"]}}')
                await eventually(lambda: heard)
                assert served.core.registry.statistics()["opening"] == 1
            await eventually(lambda: served.core.registry.statistics()["slots"] == 0)
            (told,) = figures().values()
            assert (told["sessions"], told["closing"]) == (0, 1)
            await asyncio.sleep(0)
