"""The listening socket of the service."""

from __future__ import annotations

import asyncio
import socket

from orchestrator.serve import _listen


async def test_small_writes_leave_at_once() -> None:
    """An event that waits for the ack of the one before it is 40 ms late."""
    listener = _listen("127.0.0.1", 0)
    accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), sock=listener)
    async with server:
        _, client = await asyncio.open_connection(*listener.getsockname())
        writer = await accepted
        taken = writer.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        for each in (client, writer):
            each.close()
