"""One client's WebSocket: text frames in, events out, in the dialect that the client speaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from orchestrator.begun import Begun
from orchestrator.runtime.vocabulary import Ids
from orchestrator.wire.dialect import Dialect, translate
from orchestrator.wire.errors import VigilError
from orchestrator.wire.server import ErrorEvent, Written

_MAX_REASON = 123  # bytes of a close frame that the protocol leaves for words

FLUSH = "vigil.flush"
"""An extension of the scope: ``now`` writes what was gathered, for whoever knows that nothing more comes."""

AHEAD_FRAMES, AHEAD_BYTES = 64, 1024 * 1024
"""Of what a client says before its session is open; beyond either it is no longer watched."""


class Gone(Exception):
    """The client is gone, or has not read for as long as it may."""


class OpenSockets:
    """The sockets that have a session."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> OpenSockets:
        self._count += 1
        self._none.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    def __len__(self) -> int:
        return self._count

    async def none_left(self) -> None:
        await self._none.wait()


class Peer:
    """At most one task receives and at most one sends.

    :param write_s: seconds that one event may wait for the client to read
    """

    def __init__(self, socket: WebSocket, dialect: Dialect, ids: Ids, write_s: float) -> None:
        self._socket = socket
        self._dialect = dialect
        self._ids = ids
        self._write_s = write_s
        self.told = False
        """Something was sent."""
        self.took_leave = False
        """The client closed the connection in form: it had read what came before."""
        self._ahead: deque[str | bytes] = deque()
        self._gone = False
        extension: dict[str, Any] = socket.scope.get("extensions", {}).get(FLUSH, {})
        self._flush: Callable[[], None] | None = extension.get("now")

    async def receive(self) -> str | bytes:
        """The next frame, text or binary. Raises ``Gone``."""
        return self._ahead.popleft() if self._ahead else await self._next()

    async def gone(self) -> None:
        """Return when the client is gone; what it says meanwhile is kept for ``receive``."""
        held = 0
        while len(self._ahead) < AHEAD_FRAMES and held < AHEAD_BYTES:
            try:
                frame = await self._next()
            except Gone:
                return
            self._ahead.append(frame)
            held += len(frame)
        await asyncio.Event().wait()

    async def _next(self) -> str | bytes:
        if self._gone:
            raise Gone
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            self._gone, self.took_leave = True, "reason" in message
            raise Gone
        text = message.get("text")
        return bytes(message["bytes"]) if text is None else str(text)

    async def send(self, event: Written) -> None:
        """Write one event; raises ``Gone``."""
        text = event.text
        if self._dialect is not Dialect.GA:
            text = orjson.dumps(translate(event.value, self._dialect)).decode()
        await self._write({"type": "websocket.send", "text": text})
        self.told = True

    def flush(self) -> None:
        """Write what was sent at once, where the server gathers it."""
        if self._flush is not None:
            self._flush()

    async def pass_on(self, frame: str | bytes) -> None:
        """Write a frame as another process made it; raises ``Gone``."""
        kind = "text" if isinstance(frame, str) else "bytes"
        await self._write({"type": "websocket.send", kind: frame})
        self.told = True

    def error(self, error: VigilError) -> Written:
        """An error event outside any session's sequence."""
        return ErrorEvent(event_id=self._ids("event_"), error=error.body()).written()

    async def close(self, code: int, reason: str = "") -> None:
        short = reason.encode()[:_MAX_REASON].decode(errors="ignore")
        with suppress(Gone):
            await self._write({"type": "websocket.close", "code": code, "reason": short})

    async def _write(self, message: dict[str, Any]) -> None:
        sending = Begun(self._socket.send(message))
        try:
            if not sending.begin():
                async with asyncio.timeout(self._write_s):
                    await sending
        except (TimeoutError, WebSocketDisconnect, RuntimeError) as gone:
            raise Gone from gone
