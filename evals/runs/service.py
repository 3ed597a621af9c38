"""A service of one's own: an application behind a port of this machine's for as long as it is wanted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from orchestrator.app import Core
from orchestrator.http_app import make_app
from orchestrator.server import Server, server_config


class InnerServer(Server):
    """Signals are those of whoever runs it. ``listens``: set once it takes connections; ``url``: where."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]], url: str) -> None:
        super().__init__(config, drain)
        self.url = url
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: Any, drain: Callable[[], Awaitable[None]], *, drain_s: float, port: int = 0
) -> AsyncIterator[InnerServer]:
    """Takes connections. At the end ``drain`` ends every session, and the application is shut down.

    :param port: 0: any
    """
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    # One that ended a moment ago on that port is in nobody's way.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = InnerServer(server_config(app, drain_s=drain_s), drain, url)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    started = asyncio.create_task(server.listens.wait())
    try:
        await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
        if not server.started:
            raise RuntimeError("the application did not start")
        yield server
    finally:
        started.cancel()
        server.should_exit = True
        await serving


@asynccontextmanager
async def serving(core: Core) -> AsyncIterator[str]:
    """The address at which clients reach a core. At the end every session is closed, and then the core."""
    drain_s = core.settings.timeouts.drain_s
    async with listening(make_app(core), core.drain, drain_s=drain_s) as server:
        yield server.url
