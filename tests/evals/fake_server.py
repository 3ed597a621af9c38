"""A scripted server with the chat-completions route of ``vigil serve``, behind a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Script = Callable[[int, dict[str, Any]], Any]
"""Called with the number of the request and its body. Returns: a text to say; an int, the status to refuse
with; a ``(status, code)`` pair; or ``"cut:TEXT"``, to break the connection after the text."""


class FakeServer:
    def __init__(self, script: Script = lambda n, body: "", model: str = "scripted") -> None:
        self.script = script
        self.model = model
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.resets: list[str] = []
        self.withdrawn: list[str] = []
        self.ready_after = 0
        self._answers: dict[str, tuple[str, int]] = {}
        self._ticks = 0
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        routes = [
            Route("/v1/models", self._models),
            Route("/ready", self._ready),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/streaming/reset", self._reset, methods=["POST"]),
            Route("/v1/sessions/{name}/query", self._withdraw, methods=["DELETE"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> FakeServer:
        self._listener.listen()
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = self._server.force_exit = True
        assert self._task is not None
        await self._task

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.model, "chunk_period_ms": 500}]})

    async def _ready(self, request: Request) -> Response:
        self.ready_after -= 1
        return JSONResponse({}, status_code=503 if self.ready_after >= 0 else 200)

    async def _reset(self, request: Request) -> Response:
        self.resets.append(request.headers["x-session-id"])
        return JSONResponse({"status": "reset"})

    async def _withdraw(self, request: Request) -> Response:
        known = bool(self.requests)
        self.withdrawn += [request.path_params["name"]] * known
        return JSONResponse({"error": {"code": "session_not_found"}}, status_code=200 if known else 404)

    async def _chat(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        self.requests.append((dict(request.headers), body))
        key = request.headers["idempotency-key"]
        if key in self._answers:
            return self._stream(*self._answers[key], cut=False)
        said = self.script(len(self.requests) - 1, body)
        if isinstance(said, int | tuple):
            status, code = said if isinstance(said, tuple) else (said, "refused")
            return JSONResponse({"error": {"message": f"{code}!", "code": code}}, status_code=status)
        cut = said.startswith("cut:")
        self._answers[key] = (said.removeprefix("cut:"), self._ticks)
        self._ticks += 1
        return self._stream(*self._answers[key], cut=cut)

    def _stream(self, text: str, tick: int, *, cut: bool) -> Response:
        async def events() -> AsyncIterator[bytes]:
            for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
                yield _event({"choices": [{"index": 0, "delta": {"content": piece}}]})
                if cut:
                    # Raising inside a started response makes the server close the connection.
                    raise ConnectionAbortedError
            interaction = {
                "action": "response" if text else "silence",
                "text": text,
                "tick": tick,
                "media_time_s": float(tick),
                "inference_skipped": False,
                "status": "completed",
                "chunk_index": 0,
                "window": 0,
            }
            usage = {
                "prompt_tokens": 100,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 64},
            }
            yield _event({"choices": [], "usage": usage, "interaction": interaction})
            yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
