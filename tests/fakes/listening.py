"""A service's core that listens on a socket of its own, and a client that speaks to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from orchestrator.app import Core, make_app
from orchestrator.server import Server, server_config


class QuietServer(Server):
    """Signals stay with pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listening:
    """Give it a ``core`` and await ``listen``; ``leave`` drains it. ``url``: where it is."""

    core: Core
    client: httpx.AsyncClient
    url: str
    port = 0
    """To listen on; 0: any."""

    async def listen(self) -> None:
        """Return when it takes connections."""
        listener = socket.socket(proto=socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", self.port))
        config = server_config(make_app(self.core), drain_s=self.core.settings.timeouts.drain_s)
        self._server = QuietServer(config, self.core.drain)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.client = httpx.AsyncClient(base_url=self.url, timeout=120, trust_env=False)
        while not self._server.started:
            assert not self._task.done(), self._task.result()
            await asyncio.sleep(0)

    async def leave(self) -> None:
        await self.client.aclose()
        self._server.should_exit = True
        await self._task
