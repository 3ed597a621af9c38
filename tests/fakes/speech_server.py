"""A scripted ``/v1/audio/speech`` on a real socket: a tone for each character, with faults on demand."""

from __future__ import annotations

import asyncio
import io
import wave
from types import TracebackType
from typing import Any

from aiohttp import web

from tests.fakes.speaker import tone

CHAR_MS = 40


class SpeechServer:
    """``async with SpeechServer() as server``: ``server.url``.

    :param rate: of what it says
    :param piece: bytes of one write; odd ones cut samples in two
    """

    def __init__(self, rate: int = 24000, piece: int = 4001) -> None:
        self.rate = rate
        self.piece = piece
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.connections: set[Any] = set()
        self.cut = 0
        """Answers that nobody read to their end."""
        self.status = 200
        self.content_type: str | None = None
        self.body: bytes | None = None
        self.break_after: int | None = None
        self._free = asyncio.Event()
        self._free.set()
        self.wait_after: int | None = None
        """Writes after which it waits for ``free``."""

    def hold(self, after: int = 0) -> None:
        self.wait_after = after
        self._free.clear()

    def free(self) -> None:
        self._free.set()

    async def __aenter__(self) -> SpeechServer:
        app = web.Application()
        app.router.add_post("/v1/audio/speech", self._speak)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()
        await self._runner.cleanup()

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization"))
        self.connections.add(request.transport)
        if self.status != 200:
            return web.json_response({"error": {"message": "the script says so"}}, status=self.status)
        kind = self.content_type or ("audio/wav" if body["response_format"] == "wav" else "audio/pcm")
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        sound = self.body if self.body is not None else self._sound(body)
        try:
            for number, at in enumerate(range(0, len(sound), self.piece)):
                if number == self.wait_after:
                    await self._free.wait()
                if number == self.break_after:
                    assert request.transport is not None
                    request.transport.close()
                    return response
                await response.write(sound[at : at + self.piece])
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.cut += 1
            raise
        return response

    def _sound(self, body: dict[str, Any]) -> bytes:
        pcm = tone(CHAR_MS * len(body["input"]), self.rate)
        if body["response_format"] == "pcm":
            return pcm
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setparams((1, 2, self.rate, 0, "NONE", ""))
            out.writeframes(pcm)
        return file.getvalue()
