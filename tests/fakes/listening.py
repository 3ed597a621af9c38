"""A service's core that listens on a socket of its own, and a client that speaks to it."""

from __future__ import annotations

from contextlib import AsyncExitStack

import httpx

from bridges.tls import trusted
from evals.runs.service import listening
from orchestrator.app import Core
from orchestrator.http_app import make_app


class Listening:
    """Give it a ``core`` and await ``listen``; ``leave`` drains it. ``url``: where it is."""

    core: Core
    client: httpx.AsyncClient
    url: str
    port = 0
    """To listen on; 0: any."""

    async def listen(self) -> None:
        """Return when it takes connections."""
        self._listening = AsyncExitStack()
        drain_s = self.core.settings.timeouts.drain_s
        service = listening(make_app(self.core), self.core.drain, drain_s=drain_s, port=self.port)
        self.url = (await self._listening.enter_async_context(service)).url
        self.client = httpx.AsyncClient(base_url=self.url, timeout=120, trust_env=False, verify=trusted())

    async def leave(self) -> None:
        await self.client.aclose()
        await self._listening.aclose()
