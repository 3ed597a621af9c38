"""How uvicorn serves the application: sizes, time-outs, and connections that are never left hanging."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from orchestrator.api.peer import FLUSH
from orchestrator.wire.client import MAX_FRAME_BYTES

IDLE_CONNECTION_S = 75
CLOSING_S = 5.0
"""Time for a client to answer a close frame, and to read what was written before it."""
LARGEST_FRAME = 2 * MAX_FRAME_BYTES
"""An event above ``MAX_FRAME_BYTES`` is refused by name; a frame above this ends the connection (1009)."""

GATHERED_BYTES = 32 * 1024
"""A client that does not read is noticed before more than that is held for it."""


class Gathered:
    """A transport that writes once for all that was written in a round of the event loop.

    A response's end is a handful of events, and each write costs as much as making its event did. In a full
    house the round's end is far: ``flush`` does not wait for it.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > GATHERED_BYTES:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if held:
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))


class Sockets(WebSocketsSansIOProtocol):
    """Writes what comes together at once, and cuts a connection whose client has stopped reading as soon as
    the application is done with it: an ordinary close would wait until the written bytes are read.

    A handshake that the application answered with a refusal is complete; it is no fault to be logged.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, Gathered(self.transport, self.loop))

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    async def run_asgi(self) -> None:
        self.scope["extensions"][FLUSH] = {"now": cast(Gathered, self.transport).flush}
        await super().run_asgi()
        timer, self.close_timer = self.close_timer, None
        if timer is not None:
            timer.cancel()
            self.close_timer = self.loop.call_later(CLOSING_S, self.transport.abort)
        elif not self.writable.is_set():
            self.transport.abort()


def server_config(app: Any, *, drain_s: float) -> uvicorn.Config:
    """:param drain_s: for open connections to end at a shutdown"""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_keep_alive=IDLE_CONNECTION_S,
        timeout_graceful_shutdown=round(drain_s) or 1,
        server_header=False,
        ws=Sockets,
        ws_max_size=LARGEST_FRAME,
        # Pictures and base64 audio don't shrink; deflating them costs each session its memory and time.
        ws_per_message_deflate=False,
    )


class Server(uvicorn.Server):
    """Drains before connections are cut: each session is told of its end over its own socket.

    :param drain: ends every session
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining: asyncio.Future[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.force_exit and self._draining is not None:
            self._draining.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if not self.force_exit:
            self._draining = asyncio.ensure_future(self._drain())
            await asyncio.wait({self._draining})
        await super().shutdown(sockets)
