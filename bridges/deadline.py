"""Deadlines of one request on an injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, TypeVar

from bridges.circuit import Clock
from bridges.engine import Deadlines, EngineTimeout

T = TypeVar("T")


class DeadlineWatch:
    """Cuts the await in progress when a deadline passes.

    Only awaits that go through :meth:`guard` are cut, so code between them (the consumer of a stream, for
    one) is never cancelled from here. Use as an async context manager around the whole request.
    """

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self._clock = clock
        self._deadlines = deadlines
        self._started = False
        self._passed: str | None = None
        self._guarded: asyncio.Task[Any] | None = None
        self._cut = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DeadlineWatch:
        self._task = asyncio.create_task(self._run(), name="engine deadline")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        self._task = None  # with it in reach, each request would leave a cycle to be collected

    def started(self) -> None:
        """The first token is here; only the total deadline counts from now on."""
        self._started = True

    async def guard(self, work: Awaitable[T]) -> T:
        """Await ``work``; :class:`EngineTimeout` when a deadline passes first."""
        if self._passed is not None and asyncio.iscoroutine(work):
            work.close()
        self._check()
        task = asyncio.current_task()
        assert task is not None
        cancelling, self._guarded = task.cancelling(), task
        try:
            return await work
        except asyncio.CancelledError:
            if self._cut:
                self._cut = False
                if task.uncancel() <= cancelling:  # nobody else cancelled it
                    self._check()
            raise
        except TimeoutError:
            self._check()
            raise
        finally:
            self._guarded = None
            if self._cut:
                self._cut = False
                task.uncancel()

    def _check(self) -> None:
        if self._passed is not None:
            limit = (
                self._deadlines.first_token_s if self._passed == "first_token" else self._deadlines.total_s
            )
            raise EngineTimeout(f"no {self._passed.replace('_', ' ')} within {limit:g} s", self._passed)

    async def _run(self) -> None:
        first = min(self._deadlines.first_token_s, self._deadlines.total_s)
        await self._clock.sleep(first)
        if not self._started:
            self._expire("first_token" if first < self._deadlines.total_s else "total")
            return
        await self._clock.sleep(self._deadlines.total_s - first)
        self._expire("total")

    def _expire(self, stage: str) -> None:
        self._passed = stage
        if self._guarded is not None:
            self._cut = True
            self._guarded.cancel()
