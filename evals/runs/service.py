"""A service of a run's own: its core behind a port of this machine's, for as long as the run lasts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from orchestrator.app import Core, make_app
from orchestrator.server import Server, server_config


class _Server(Server):
    """Signals are those of the run. ``listens``: set once it takes connections."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config, drain)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(core: Core) -> AsyncIterator[str]:
    """The address at which its clients reach it. At the end every session is closed, and then the core."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = _Server(server_config(make_app(core), drain_s=core.settings.timeouts.drain_s), core.drain)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    started = asyncio.create_task(server.listens.wait())
    try:
        await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        started.cancel()
        server.should_exit = True
        await serving
