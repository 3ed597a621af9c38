"""The bounded stream of a backend's outputs: one reader, waiting writers, an end that always gets through."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from orchestrator.session.backend import BackendOutput, Closed


class OutputStream:
    """At most ``size`` unread outputs, and places kept for the last ones. ``put`` waits for the reader."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: deque[BackendOutput] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self._fault: Exception | None = None
        self._most = 0

    async def put(self, output: BackendOutput) -> None:
        """Add an output; after the end it is dropped."""
        while len(self._items) >= self._size and not self._ended:
            self._room.clear()
            await self._room.wait()
        if not self._ended:
            self._items.append(output)
            self._most = max(self._most, len(self._items))
            self._filled.set()

    def slip_in(self, output: BackendOutput, *, first: bool) -> None:
        """Add an output without waiting, before all others or behind them; of its kind there is no other."""
        if not self._ended:
            (self._items.appendleft if first else self._items.append)(output)
            self._filled.set()

    async def end(self, closed: Closed, *before: BackendOutput, fault: Exception | None = None) -> None:
        """The last outputs, always taken; releases every waiting writer. A second end is ignored.

        :param fault: raised to the reader in place of ``closed``
        """
        if not self._ended:
            self._ended, self._fault = True, fault
            self._items.extend((*before, closed))
            self._filled.set()
            self._room.set()

    def drop(self, stale: Callable[[BackendOutput], bool]) -> int:
        """Take back unread outputs; how many there were."""
        kept = [item for item in self._items if not stale(item)]
        dropped = len(self._items) - len(kept)
        self._items = deque(kept)
        if dropped:
            self._room.set()
        return dropped

    async def read(self) -> AsyncIterator[BackendOutput]:
        """Outputs in order, ``Closed`` last, or the fault that ended it."""
        while True:
            while not self._items:
                self._filled.clear()
                await self._filled.wait()
            output = self._items.popleft()
            self._room.set()
            if isinstance(output, Closed) and self._fault is not None:
                raise self._fault
            yield output
            if isinstance(output, Closed):
                return

    def statistics(self) -> dict[str, int]:
        return {"unread": len(self._items), "most_unread": self._most, "size": self._size}


async def pumped(
    stream: OutputStream, pump: Coroutine[Any, Any, None], name: str, stop: Callable[[], Awaitable[None]]
) -> AsyncGenerator[BackendOutput, None]:
    """Read a stream while ``pump`` fills it, as a task of that name.

    :param stop: awaited at the end, whatever ended it; a reader that is cancelled ends the pump
    """
    task = asyncio.create_task(pump, name=name)
    try:
        async for output in stream.read():
            yield output
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stop()
