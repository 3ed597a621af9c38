"""A router in front of several engines, as vLLM's own with ``--policy consistent_hash``.

The header ``x-session-id`` decides, whatever else a request holds; requests without it go by their body. A
session whose engine is gone goes to the first that is there (and so do all others of that engine).
"""

from __future__ import annotations

import bisect
import hashlib
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import aiohttp
from aiohttp import web

_NODES = 160
_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})


def _place(name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(name).digest()[:8])


class Router:
    """``async with Router([engine.url, ...]) as router``: one address, ``router.url``, for all of them.

    ``sent``: requests by session and engine.
    """

    def __init__(self, engines: Sequence[str]) -> None:
        self.engines = tuple(engines)
        self.sent: Counter[tuple[str, str]] = Counter()
        self._port = 0
        self._gone: set[str] = set()
        nodes = [(_place(f"{url}#{n}".encode()), url) for url in engines for n in range(_NODES)]
        self._ring = sorted(nodes)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _pick(self, key: bytes) -> str:
        at = bisect.bisect(self._ring, (_place(key), "")) % len(self._ring)
        url = self._ring[at][1]
        return url if url not in self._gone else next(each for each in self.engines if each not in self._gone)

    async def __aenter__(self) -> Router:
        self._client = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        session = request.headers.get("x-session-id", "")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        while len(self._gone) < len(self.engines):
            engine = self._pick(session.encode() or body)
            try:
                answer = await self._client.request(
                    request.method, engine + request.path_qs, data=body, headers=headers
                )
            except aiohttp.ClientConnectorError:
                self._gone.add(engine)
                continue
            self.sent[session, engine] += 1
            return await self._passed_on(request, answer)
        return web.json_response({"error": {"message": "no engine"}}, status=503)

    async def _passed_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        async with answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response
