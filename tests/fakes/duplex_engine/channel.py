"""What leaves the engine: one socket's writer, and a session's numbered, journaled events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from tests.fakes.duplex_engine.faults import Drop

Json = dict[str, Any]
UNSEQUENCED = frozenset(
    {"session.created", "session.resumed", "session.replaced", "session.resync_required", "transport.error"}
)


class Wire:
    """One socket's single writer. What is put is written in order; nothing is put after an end."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self._queue: asyncio.Queue[str | tuple[int, str] | None] = asyncio.Queue()
        self._ended = False
        self.generation = 0

    def put(self, text: str) -> None:
        if not self._ended:
            self._queue.put_nowait(text)

    def close(self, code: int, reason: str) -> None:
        """Close the socket once everything before is written."""
        if not self._ended:
            self._ended = True
            self._queue.put_nowait((code, reason[:120]))

    def break_after(self) -> None:
        """Break the connection, without a close frame, once everything before is written."""
        if not self._ended:
            self._ended = True
            self._queue.put_nowait(None)

    def abort(self) -> None:
        """Break the connection now."""
        self._ended = True
        self._socket.transport.abort()
        self._queue.put_nowait(None)

    def read(self, wanted: bool) -> None:
        """Take what the client sends, or leave it to pile up on its side."""
        if wanted:
            self._socket.transport.resume_reading()
        else:
            self._socket.transport.pause_reading()

    async def run(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if item is None:
                    self._socket.transport.abort()
                    return
                if isinstance(item, tuple):
                    await self._socket.close(*item)
                    return
                await self._socket.send(item)
            except ConnectionClosed:
                return


@dataclass
class Channel:
    """One session's events towards whoever is attached; work goes on while nobody is.

    :param silenced: True: nothing leaves, as from an engine that is stuck
    :param sent: every event, audio left out
    """

    session_id: str
    now: Callable[[], float]
    journal_bytes: int
    journal_s: float
    silenced: Callable[[], bool]
    changed: Callable[[], None]
    wire: Wire | None = None
    seq: int = 0
    dropped_to: int = 0
    overflowed: bool = False
    drops: deque[Drop] = field(default_factory=deque)
    sent: list[Json] = field(default_factory=list)
    _journal: deque[tuple[int, str, float]] = field(default_factory=deque)
    _bytes: int = 0
    _events: int = 0

    def emit(self, type_: str, **fields: Any) -> Json:
        """Number, note down, journal and send one event."""
        self._events += 1
        event: Json = {"type": type_, "event_id": f"event_{self._events:032x}", **fields}
        event.setdefault("session_id", self.session_id)
        if type_ not in UNSEQUENCED and not self.overflowed:
            self.seq += 1
            event["server_event_seq"] = self.seq
            self._keep(event)
        self.sent.append({k: v for k, v in event.items() if k != "delta"} if "metadata" in event else event)
        self._send(orjson.dumps(event).decode())
        self.changed()
        return event

    def say(self, text: str) -> None:
        """Send this as it is: no event of the session."""
        if self.wire is not None:
            self.wire.put(text)

    def acknowledge(self, seq: int) -> None:
        while self._journal and self._journal[0][0] <= seq:
            self._forget()

    def replay(self, after: int) -> None:
        for seq, text, _ in self._journal:
            if seq > after:
                self._send(text)

    def reaches(self, after: int) -> bool:
        """Everything newer than ``after`` is still journaled."""
        self._expire()
        return not self.overflowed and after >= self.dropped_to

    @property
    def journaled(self) -> int:
        return len(self._journal)

    def _keep(self, event: Json) -> None:
        text = orjson.dumps(event).decode()
        self._expire()
        if self._bytes + len(text) > self.journal_bytes:
            self.overflowed = True
            self.seq -= 1
            del event["server_event_seq"]
            self.emit("session.resync_required", reason="journal_overflow")
            return
        self._journal.append((self.seq, text, self.now()))
        self._bytes += len(text)

    def _expire(self) -> None:
        while self._journal and self._journal[0][2] < self.now() - self.journal_s:
            self.dropped_to = self._journal[0][0]
            self._forget()

    def _forget(self) -> None:
        _, text, _ = self._journal.popleft()
        self._bytes -= len(text)

    def _send(self, text: str) -> None:
        if self.wire is None or self.silenced():
            return
        if not self.drops:
            self.wire.put(text)
            return
        drop = self.drops[0]
        if drop.after > drop.lose:
            self.wire.put(text)
        drop.after -= 1
        if drop.after <= 0:
            self.drops.popleft()
            wire, self.wire = self.wire, None
            wire.break_after()
