"""A scripted receiver of webhook events behind a real socket. ::

async with FakeReceiver([503, 200]) as receiver:
    receiver.url, receiver.got[-1].json ...
    await receiver.until(lambda: len(receiver.taken) == 2)
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson
import uvicorn
from uvicorn.server import ServerState


@dataclass
class Got:
    """One request. ``status``: what it was answered with; 0: with nothing."""

    headers: dict[str, str]
    body: bytes
    status: int = 0

    @property
    def json(self) -> dict[str, Any]:
        return dict(orjson.loads(self.body))


class FakeReceiver:
    """:param script: statuses in the order of the requests, the last one for ever; 0: hold the answer back
    :param headers: sent with each answer
    """

    def __init__(self, script: Sequence[int] = (200,), headers: Sequence[tuple[str, str]] = ()) -> None:
        self.script = script
        self.headers = headers
        self.got: list[Got] = []
        self._changed = asyncio.Condition()
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/events"

    @property
    def taken(self) -> list[Got]:
        """What was answered with success."""
        return [got for got in self.got if 200 <= got.status < 300]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(holds)

    async def __aenter__(self) -> FakeReceiver:
        await self.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def up(self) -> None:
        """Listen, on the same port as before."""
        config = uvicorn.Config(
            self, log_config=None, log_level="critical", access_log=False, lifespan="off", ws="none",
            interface="asgi3", proxy_headers=False,
        )  # fmt: skip
        config.load()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._state = state = ServerState()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
            sock=listener,
        )

    def down(self) -> None:
        """Listen no more; connections break."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        raw, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            raw += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        got = Got(headers, raw)
        self.got.append(got)
        status = self.script[min(len(self.got), len(self.script)) - 1]
        if status:
            told = [(name.encode(), value.encode()) for name, value in self.headers]
            await send({"type": "http.response.start", "status": status, "headers": told})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            got.status = status
        async with self._changed:
            self._changed.notify_all()
        if not status:
            await receive()
