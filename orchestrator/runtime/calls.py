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
    :param rest_s: how long all appends that were submitted before a close may take together
    """

    call_s: float = 10.0
    close_s: float = 10.0
    grace_s: float = 0.25
    rest_s: float = 2.0


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


@dataclass(slots=True)
class _Flight:
    """A call that may be ended early; ``due``: its deadline, ``cut``: it is to be ended."""

    effect: AnyBackendEffect
    due: float
    cut: bool = False


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
        self._interrupts = 0
        self._ends_at: float | None = None  # once a close was submitted
        self._busy = False
        self._flight: _Flight | None = None  # the call in flight, if it may be ended early
        self._cut = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._grace: asyncio.Task[None] | None = None
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

    def interrupt(self, *, closing: bool = False) -> None:
        """A cancel or close was submitted: the call in flight gets ``grace_s`` more. Pair with ``settle``."""
        self._interrupts += 1
        if closing and self._ends_at is None:
            self._ends_at = self._clock.now() + self._deadlines.rest_s
        self._refresh()

    def settle(self) -> None:
        """That cancel or close was executed; what it asked for is queued here now."""
        self._interrupts -= 1

    async def run(self) -> None:
        """Carry out effects until cancelled.

        One task carries out all calls: a task for each would be most of what a call costs. Its place is
        taken by another where a call had to be ended early, which may not heed that.
        """
        hand: asyncio.Task[None] | None = None
        try:
            while True:
                if hand is None:
                    hand = asyncio.create_task(self._carry_out_all(), name="backend calls")
                    hand.add_done_callback(lambda _: self._cut.set())
                await self._cut.wait()
                self._cut.clear()
                if hand.done():
                    return hand.result()
                flight = self._flight
                if flight is None or not flight.cut:
                    continue  # it was over first
                self._over()
                await _put_down(hand)
                hand = None
                self._carried(flight.effect, self._unfinished())
        finally:
            for task in (self._watch, self._grace):
                if task is not None:
                    task.cancel()
            if hand is not None:
                await _put_down(hand)

    async def _carry_out_all(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            effect = self._queue.popleft()
            self._busy, self._planned_tick = True, None
            error: VigilError | None = None
            fault: Exception | None = None
            flight: _Flight | None = None
            try:
                if isinstance(effect, BackendCancel | BackendClose):
                    await self._last_call(effect)
                elif self._too_late(effect):
                    raise self._unfinished()
                else:
                    flight = self._begun(effect)
                    await self._invoke(effect)
            except VigilError as refused:
                error = refused
            except Exception as raised:
                fault = raised
                error = ServerFault("the backend failed unexpectedly; the session ends")
            if flight is not None:
                if self._flight is not flight:
                    return  # ended early: this came too late
                self._over()
            self._carried(effect, error, fault)

    def _carried(
        self, effect: AnyBackendEffect, error: VigilError | None, fault: Exception | None = None
    ) -> None:
        self._busy = False
        self._on_carried(Carried(effect, error, self._planned_tick))
        if fault is not None:
            self._on_fault(fault)

    async def _last_call(self, effect: BackendCancel | BackendClose) -> None:
        limit_s = self._deadlines.close_s if isinstance(effect, BackendClose) else self._deadlines.call_s
        if not await bounded(self._invoke(effect), self._clock.sleep(limit_s)):
            raise _late(limit_s)

    def _begun(self, effect: AnyBackendEffect) -> _Flight:
        flight = self._flight = _Flight(effect, self._clock.now() + self._deadlines.call_s)
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_deadlines(), name="deadlines of backend calls")
        self._refresh()
        return flight

    def _over(self) -> None:
        self._flight = None
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def _watch_deadlines(self) -> None:
        """One sleeper for all calls: their limits are equal, so a later call is never due before it wakes."""
        while self._flight is not None:
            left_s = self._flight.due - self._clock.now()
            if left_s <= 0:
                self._end_call()
                break
            await self._clock.sleep(left_s)
        self._watch = None

    async def _watch_grace(self) -> None:
        await self._clock.sleep(self._deadlines.grace_s)
        self._end_call()

    def _end_call(self) -> None:
        if self._flight is not None:
            self._flight.cut = True
            self._cut.set()

    def _unfinished(self) -> VigilError:
        if self._interrupted:
            return Conflict("a cancel or close came before this was taken", code=STALE_FENCE)
        return _late(self._deadlines.call_s)

    @property
    def _interrupted(self) -> bool:
        """A cancel or close waits for the call in flight."""
        return self._interrupts > 0 or any(isinstance(e, BackendCancel | BackendClose) for e in self._queue)

    def _too_late(self, effect: AnyBackendEffect) -> bool:
        """Input that a close does not wait for any more."""
        ends_at = self._ends_at
        return isinstance(effect, BackendAppend) and ends_at is not None and self._clock.now() >= ends_at

    def _refresh(self) -> None:
        if self._flight is not None and self._grace is None and self._interrupted:
            self._grace = asyncio.create_task(self._watch_grace(), name="grace of a backend call")

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


async def _put_down(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=CANCEL_WAIT_S)


def _late(limit_s: float) -> EngineUnavailable:
    return EngineUnavailable(
        f"the backend did not answer within {limit_s:g} s", code="timeout", retry_after_s=1.0
    )
