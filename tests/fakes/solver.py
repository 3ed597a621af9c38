"""A scripted solver: an OpenAI-compatible chat endpoint behind a real socket. ::

async with FakeSolver(["Vermeer."]) as solver:
    solver.url, solver.asked[-1].text ...
    solver.hold()        # answers wait from now on ...
    solver.let_go()      # ... until here
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson
import uvicorn
from uvicorn.server import ServerState

Script = Callable[["Asked"], "str | Reply"] | Sequence["str | Reply"]
"""A callable, or answers in the order of the questions, the last one for ever."""


@dataclass(frozen=True)
class Reply:
    """What is sent instead of an ordinary answer. ``status``: with ``body``, as it is."""

    body: Any = None
    status: int = 200
    drop: bool = False


@dataclass
class Asked:
    """One request. ``gone``: the client closed it before it was answered."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    gone: bool = False
    answered: bool = False

    @property
    def system(self) -> str:
        return str(self.body["messages"][0]["content"])

    @property
    def parts(self) -> list[dict[str, Any]]:
        content = self.body["messages"][1]["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    @property
    def text(self) -> str:
        return "\n".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def images(self) -> list[str]:
        return [part["image_url"]["url"] for part in self.parts if part["type"] == "image_url"]


class FakeSolver:
    """:param script: see :data:`Script`"""

    def __init__(self, script: Script = ("An answer.",), model: str = "solver") -> None:
        self.script = script
        self.model = model
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self._at_once = 0
        self._go = asyncio.Event()
        self._go.set()
        self._changed = asyncio.Condition()
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def hold(self) -> None:
        self._go.clear()

    def let_go(self) -> None:
        self._go.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something that happened here has made ``holds`` true."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(holds)

    async def __aenter__(self) -> FakeSolver:
        config = uvicorn.Config(
            self, log_config=None, log_level="critical", access_log=False, lifespan="off", ws="none",
            interface="asgi3", proxy_headers=False,
        )  # fmt: skip
        config.load()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        state = self._state
        self._server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
            sock=listener,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        raw, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            raw += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        asked = Asked(scope["path"], headers, orjson.loads(raw) if raw else {})
        self.asked.append(asked)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self._tell()
            if await self._held(receive):
                await self._answer(asked, scope, send)
                asked.answered = True
            else:
                asked.gone = True
        finally:
            self._at_once -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _held(self, receive: Any) -> bool:
        """Wait while answers are held back; False when the client leaves first."""
        if self._go.is_set():
            return True
        waits = {asyncio.create_task(receive()), asyncio.create_task(self._go.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return self._go.is_set()
        finally:
            for task in waits:
                task.cancel()

    async def _answer(self, asked: Asked, scope: dict[str, Any], send: Any) -> None:
        script = self.script
        place = len(self.asked) - 1
        said = script(asked) if callable(script) else script[min(place, len(script) - 1)]
        reply = Reply(_completion(said, self.model)) if isinstance(said, str) else said
        if reply.drop:
            for connection in self._state.connections:
                if getattr(connection, "client", None) == scope["client"]:
                    connection.transport.abort()
            return
        body = reply.body if isinstance(reply.body, bytes) else orjson.dumps(reply.body)
        start = {"type": "http.response.start", "status": reply.status}
        await send({**start, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _completion(text: str, model: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "chatcmpl-fake", "object": "chat.completion", "model": model, "choices": [choice]}
