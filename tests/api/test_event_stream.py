"""The stream of events without a socket: a reader that takes nothing, and one that falls behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from memory.store.base import Entry
from orchestrator.api import routes_events
from orchestrator.api.routes_events import EventStream, stream
from orchestrator.wire.errors import ServerFault

SCOPE = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}}


class Pages:
    """A tail that gives what it is told to."""

    session_id = "s"

    def __init__(self, *pages: Sequence[Entry], behind: Sequence[int] = (), error: bool = False) -> None:
        self.reason: str | None = None
        self._pages = pages
        self._behind = list(behind)
        self._error = error

    @property
    def behind(self) -> int:
        return self._behind.pop(0) if self._behind else 0

    async def pages(self, idle_s: float) -> AsyncGenerator[Sequence[Entry], None]:
        for page in self._pages:
            yield page
        if self._error:
            raise ServerFault("the store does not answer", code="store_error")
        self.reason = "session_closed"


def fact(seq: int, kind: str = "query_cleared") -> Entry:
    return Entry(seq, 5, kind, {"media_time_ms": 7})


async def sent(tail: Pages, *kinds: str) -> list[str]:
    return [part.decode() async for part in stream(tail, kinds)]


async def test_events_pauses_and_the_end() -> None:
    parts = await sent(Pages([fact(1), fact(2, "something_new")], (), [fact(3)]))
    assert parts == [
        ": alive\n\n",
        "id: 1\nevent: query_cleared\ndata: "
        '{"seq":1,"at_ms":5,"kind":"query_cleared","session_id":"s","data":{"media_time_ms":7}}\n\n',
        ": alive\n\n",
        "id: 3\nevent: query_cleared\ndata: "
        '{"seq":3,"at_ms":5,"kind":"query_cleared","session_id":"s","data":{"media_time_ms":7}}\n\n',
        'event: end\ndata: {"reason":"session_closed"}\n\n',
    ]


async def test_one_that_falls_behind_is_told() -> None:
    tail = Pages([fact(1)], [fact(2)], [fact(3)], behind=[2000, 2001])
    parts = await sent(tail)
    assert [part[:5] for part in parts[1:]] == ["id: 1", "id: 2", "event"]
    assert "slow_reader" in parts[-1]


async def test_a_fault_of_the_store_is_told_by_its_code() -> None:
    assert "store_error" in (await sent(Pages([fact(1)], error=True)))[-1]


async def test_one_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_events, "STALL_S", 0.02)
    readers: Counter[str] = Counter()
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                assert readers["s"] == 1
                yield b": alive\n\n"
        finally:
            closed.set()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # the socket is full

    async with asyncio.timeout(60):
        await EventStream(endless(), readers, "s")(SCOPE, receive, send)
        await closed.wait()
    assert not readers
