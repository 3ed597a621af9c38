"""A web server of files and endless streams, on a real socket: ranges, redirects, logins, breaks."""

from __future__ import annotations

import asyncio
from types import TracebackType

from aiohttp import web


class Web:
    """``async with Web() as site``; ``site.files`` and ``site.redirects`` by path, a camera at ``/live``.

    :param ranges: it knows them
    """

    def __init__(self, *, ranges: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.live: list[bytes] = []
        self.asked: list[tuple[str, str, str | None]] = []
        """Path, host and range of each request."""
        self.login: str | None = None
        self.break_after: int | None = None
        """Bytes after which an answer breaks off."""
        self.break_live_after: int | None = None
        self._ranges = ranges
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Web:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, span = request.path, request.headers.get("range")
        self.asked.append((path, request.host, span))
        if self.login is not None and request.headers.get("authorization") != self.login:
            return web.Response(status=401)
        if path in self.redirects:
            return web.Response(status=302, headers={"location": self.redirects[path]})
        if path == "/live":
            return await self._film(request)
        data = self.files.get(path)
        if data is None:
            return web.Response(status=404)
        start = int(span.removeprefix("bytes=").removesuffix("-")) if span and self._ranges else 0
        headers = {"content-length": str(len(data) - start)}
        if span and self._ranges:
            headers["content-range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        response = web.StreamResponse(status=206 if span and self._ranges else 200, headers=headers)
        await response.prepare(request)
        end = len(data) if self.break_after is None else start + self.break_after
        await response.write(data[start:end])
        if end < len(data):
            assert request.transport is not None
            request.transport.abort()
        return response

    async def _film(self, request: web.Request) -> web.StreamResponse:
        """Ten pictures a second, each as soon as it is taken, as cameras send Motion JPEG."""
        kind = "multipart/x-mixed-replace; boundary=picture"
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        sent = 0
        while True:
            picture = self.live[sent % len(self.live)]
            head = f"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
            await response.write(head.encode() + picture + b"\r\n")
            sent += 1
            if sent == self.break_live_after:
                self.break_live_after = None
                assert request.transport is not None
                request.transport.abort()
                return response
            await asyncio.sleep(0.1)
