"""Calls of a session's backend: one at a time, in order, each with a deadline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from orchestrator.session.backend import Clock, SessionBackend
from orchestrator.session.effects import (
    AnyBackendEffect,
    BackendAppend,
    BackendCancel,
    BackendClear,
    BackendClose,
    BackendCommit,
    BackendPlayback,
    BackendTell,
    BackendUpdate,
    Carried,
)
from orchestrator.session.turns import STALE_FENCE
from orchestrator.wire.errors import Conflict, EngineUnavailable, ServerFault, VigilError


@dataclass(frozen=True, slots=True)
class CallDeadlines:
    """Seconds.

    :param call_s: any backend call but open and close
    :param close_s: a close, after which the slot stays taken and the close is tried again
    :param grace_s: how long an append may go on once a cancel or close was submitted behind it
    """

    call_s: float = 10.0
    close_s: float = 10.0
    grace_s: float = 0.25


CANCEL_WAIT_S = 1.0
"""Real seconds granted to cancelled work to unwind; what ignores that is abandoned."""


async def bounded(work: Coroutine[Any, Any, Any], *guards: Coroutine[Any, Any, Any]) -> bool:
    """Run ``work`` until a guard ends first. True if it finished; its exception is raised.

    Cancellation-safe: whatever happens, work that heeds cancellation is not left running.
    """
    task = asyncio.ensure_future(work)
    watchers = [asyncio.ensure_future(guard) for guard in guards]
    try:
        await asyncio.wait({task, *watchers}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (task, *watchers):
            each.cancel()
        await asyncio.wait({task, *watchers}, timeout=CANCEL_WAIT_S)


class BackendCalls:
    """The lane of one session. ``queue`` never blocks; ``idle`` says that everything was carried out.

    :param read_out: awaited after a close: what the backend said last is told before the session ends
    :param on_carried: told the result of each call; runs in the lane's task
    :param on_fault: told what a call raised that is no ``VigilError``, after ``on_carried``
    """

    def __init__(
        self,
        backend: SessionBackend,
        clock: Clock,
        deadlines: CallDeadlines,
        read_out: Callable[[], Awaitable[object]],
        on_carried: Callable[[Carried], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._deadlines = deadlines
        self._read_out = read_out
        self._on_carried = on_carried
        self._on_fault = on_fault
        self._queue: deque[AnyBackendEffect] = deque()
        self._wake = asyncio.Event()
        self._interrupted = asyncio.Event()
        self._interrupts = 0
        self._busy = False
        self._planned_tick: int | None = None  # of the update that was carried out last

    @property
    def idle(self) -> bool:
        return not self._busy and not self._queue

    @property
    def depth(self) -> int:
        return len(self._queue) + self._busy

    def queue(self, effect: AnyBackendEffect) -> None:
        self._queue.append(effect)
        self._wake.set()
        self._refresh()

    def interrupt(self) -> None:
        """A cancel or close was submitted: the call in flight gets ``grace_s`` more. Pair with ``settle``."""
        self._interrupts += 1
        self._refresh()

    def settle(self) -> None:
        """That cancel or close was executed; what it asked for is queued here now."""
        self._interrupts -= 1
        self._refresh()

    async def run(self) -> None:
        """Carry out effects until cancelled."""
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            effect = self._queue.popleft()
            self._busy = True
            self._refresh()
            error: VigilError | None = None
            fault: Exception | None = None
            self._planned_tick = None
            try:
                await self._call(effect)
            except VigilError as refused:
                error = refused
            except Exception as raised:
                fault = raised
                error = ServerFault("the backend failed unexpectedly; the session ends")
            self._busy = False
            self._on_carried(Carried(effect, error, self._planned_tick))
            if fault is not None:
                self._on_fault(fault)

    async def _call(self, effect: AnyBackendEffect) -> None:
        if isinstance(effect, BackendCancel | BackendClose):
            limit = self._deadlines.close_s if isinstance(effect, BackendClose) else self._deadlines.call_s
            finished = await bounded(self._invoke(effect), self._clock.sleep(limit))
        else:
            limit = self._deadlines.call_s
            finished = await bounded(self._invoke(effect), self._clock.sleep(limit), self._interruption())
            if not finished and self._interrupted.is_set():
                raise Conflict("a cancel or close came before this was taken", code=STALE_FENCE)
        if not finished:
            raise EngineUnavailable(
                f"the backend did not answer within {limit:g} s", code="timeout", retry_after_s=1.0
            )

    def _refresh(self) -> None:
        queued = any(isinstance(effect, BackendCancel | BackendClose) for effect in self._queue)
        if self._interrupts or queued:
            self._interrupted.set()
        else:
            self._interrupted.clear()

    async def _interruption(self) -> None:
        await self._interrupted.wait()
        await self._clock.sleep(self._deadlines.grace_s)

    async def _invoke(self, effect: AnyBackendEffect) -> None:
        match effect:
            case BackendAppend(unit=unit, fence=fence):
                await self._backend.append(unit, fence, effect.operation_id)
            case BackendTell(fact=fact, fence=fence):
                await self._backend.tell(fact, fence)
            case BackendCommit(fence=fence, create_response=create_response):
                await self._backend.commit(fence, create_response)
            case BackendUpdate(config=config):
                self._planned_tick = await self._backend.update(config)
            case BackendCancel(cancelled=cancelled, next_fence=next_fence):
                await self._backend.cancel(cancelled, next_fence)
            case BackendClear():
                await self._backend.clear()
            case BackendPlayback():
                await self._backend.playback(
                    effect.response_id, effect.fence, effect.played_ms, effect.committed_ms
                )
            case BackendClose(reason=reason):
                await self._backend.close(reason)
                await self._read_out()
