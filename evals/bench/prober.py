"""One session under fire: frames of ``Mutants`` over a real socket, and what must never come of them."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from evals.bench.mutants import Mutants

PATIENCE_S = 30.0
"""Within which everything sent must have been executed."""

RECKONED = frozenset({"commit_aborted", "session_update_aborted", "server_vad_unavailable"})
"""Server errors that a client's own refused append, or a feature that is not there, leads to."""


@dataclass
class Report:
    """``findings``: what must not have happened, with the frames sent last."""

    sent: int = 0
    received: int = 0
    resumes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class Prober:
    """
    :param url: ``ws://`` address of the route
    :param opening: the session object to open with
    """

    def __init__(
        self,
        url: str,
        mutants: Mutants,
        opening: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.report = Report()
        self._url = f"{url}?duplex=1&autostart=0"
        self._mutants = mutants
        self._opening = dict(opening or {})
        self._headers = dict(headers or {})
        self._session_id = ""
        self._token = ""
        self._seq = 0
        self._over: str | None = None
        self._last: list[str | bytes] = []
        self._barriers = 0
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._socket: ClientConnection
        self._reader: asyncio.Task[None]

    async def run(self, events: int, burst: int = 25) -> Report:
        """Send that many frames, now and then over a new socket, then close the session in order."""
        await self._join({"type": "session.update", "session": self._opening})
        while self.report.sent < events and not self.report.findings:
            self._last = [self._mutants.frame() for _ in range(burst)]
            try:
                for frame in self._last:
                    await self._socket.send(frame)
                self.report.sent += burst
                await self._barrier()
                if self.report.sent // burst % 20 == 0:
                    await self._drop_and_resume()
            except (ConnectionClosed, TimeoutError) as lost:
                await asyncio.wait([self._reader], timeout=1)
                self._found(f"the session was lost: {type(lost).__name__} {lost} {self._over or ''}")
        if not self.report.findings:
            await self._socket.send(orjson.dumps({"type": "session.close"}).decode())
            await asyncio.wait([self._reader], timeout=PATIENCE_S)
            if self._over != "client_close":
                self._found(f"closed with {self._over}")
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._socket.transport.abort()
        return self.report

    async def _join(self, first: Mapping[str, Any]) -> None:
        self._socket = await connect(
            self._url, additional_headers=self._headers, max_size=None, compression=None, proxy=None
        )
        await self._socket.send(orjson.dumps(first).decode())
        answer = orjson.loads(await self._socket.recv())
        if answer["type"] not in ("session.created", "session.resumed"):
            raise AssertionError(f"it did not begin: {answer}")
        self._session_id, self._token = answer["session"]["id"], answer["resume_token"]
        self._reader = asyncio.create_task(self._read(self._socket))

    async def _drop_and_resume(self) -> None:
        self._socket.transport.abort()
        await asyncio.wait([self._reader])
        await self._join(
            {
                "type": "session.resume",
                "session_id": self._session_id,
                "resume_token": self._token,
                "last_received_server_event_seq": self._seq,
            }
        )
        self.report.resumes += 1

    async def _barrier(self) -> None:
        """Return when all that was sent is executed: an error that names this event is the sign of it."""
        code = "input_backpressure"
        while code == "input_backpressure":
            self._barriers += 1
            name = f"barrier-{self._barriers}"
            passed = self._waiting[name] = asyncio.get_running_loop().create_future()
            ack = {"type": "session.event_ack", "server_event_seq": self._seq}
            ask = {"type": "conversation.item.retrieve", "item_id": "nobody", "event_id": name}
            for event in (ack, ask):
                await self._socket.send(orjson.dumps(event).decode())
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait([passed, self._reader], return_when=asyncio.FIRST_COMPLETED)
            if not passed.done():
                raise TimeoutError("the connection ended")
            code = passed.result()

    async def _read(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for message in socket:
                self._take(orjson.loads(message))

    def _take(self, event: dict[str, Any]) -> None:
        self.report.received += 1
        seq = event.get("server_event_seq")
        if seq is not None:
            if seq != self._seq + 1:
                self._found(f"event {seq} came after {self._seq}")
            self._seq = seq
        match event["type"]:
            case "error":
                self._refused(event["error"])
            case "session.closed" | "session.expired":
                self._over = str(event["reason"])
            case "session.resync_required" | "session.replaced":
                self._found(event["type"])
        item = event.get("item")
        for name in (event.get("response_id"), item.get("id") if isinstance(item, dict) else None):
            if isinstance(name, str):
                self._mutants.seen.append(name)
        del self._mutants.seen[:-20]

    def _refused(self, error: Mapping[str, Any]) -> None:
        code = str(error["code"])
        waiting = self._waiting.pop(str(error.get("event_id")), None)
        if waiting is not None:
            waiting.set_result(code)
            return
        self.report.errors[code] += 1
        wrong = error["type"] == "server_error" and code not in RECKONED
        if wrong or code == "output_backpressure":  # the client reads all the time
            self._found(f"error {orjson.dumps(error).decode()}")

    def _found(self, what: str) -> None:
        self.report.findings.append(f"{what}\n  after: {[frame[:300] for frame in self._last]}")


NO_PICTURE = base64.b64decode("/9j/4HJlc3Q=")
"""Bytes that begin like a JPEG, and pass for one where none is decoded."""
