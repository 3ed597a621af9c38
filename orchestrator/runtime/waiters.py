"""Who waits for a session: for a command to be carried out, or for the tick that answers an operation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from orchestrator.runtime.calls import bounded
from orchestrator.session.backend import Clock
from orchestrator.session.commands import AnyCommand, OperationCommand
from orchestrator.session.operations import Outcome
from orchestrator.wire.errors import EngineUnavailable, VigilError

T = TypeVar("T")


class Waiters:
    """Futures of one session. A waiter that goes away leaves nothing behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._performing: dict[int, asyncio.Future[None]] = {}
        self._answers: dict[str, set[asyncio.Future[Outcome]]] = {}

    def __len__(self) -> int:
        return len(self._performing) + sum(map(len, self._answers.values()))

    @contextmanager
    def performing(self, command: AnyCommand) -> Iterator[asyncio.Future[None]]:
        """Done when that very command was carried out; fails when it was refused."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._performing[id(command)] = future
        try:
            yield future
        finally:
            self._performing.pop(id(command), None)
            _forget(future)

    @contextmanager
    def answer_to(self, operation_id: str) -> Iterator[asyncio.Future[Outcome]]:
        """Done when a tick answered the operation; fails when it was refused or dropped."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        waiting = self._answers.setdefault(operation_id, set())
        waiting.add(future)
        try:
            yield future
        finally:
            waiting.discard(future)
            if not waiting and self._answers.get(operation_id) is waiting:
                del self._answers[operation_id]
            _forget(future)

    async def within(self, future: asyncio.Future[T], timeout_s: float) -> T:
        """The future's result. Raises ``EngineUnavailable`` (``timeout``) when it takes too long."""
        if await bounded(_settled(future), self._clock.sleep(timeout_s)):
            return future.result()
        raise EngineUnavailable(
            f"no answer within {timeout_s:g} s; the session goes on", code="timeout", retry_after_s=1.0
        )

    # --- what the session tells ---------------------------------------------------------------------------

    def performed(self, command: AnyCommand) -> None:
        future = self._performing.get(id(command))
        if future is not None and not future.done():
            future.set_result(None)

    def answered(self, outcome: Outcome) -> None:
        for future in self._answers.pop(outcome.operation_id, ()):
            if not future.done():
                future.set_result(outcome)

    def dropped(self, operation_id: str, error: VigilError) -> None:
        for future in self._answers.pop(operation_id, ()):
            _fail(future, error)

    def refused(self, command: AnyCommand, error: VigilError) -> bool:
        """False when nobody waits for the command."""
        performer = self._performing.get(id(command))
        if performer is not None:
            _fail(performer, error)
        waiting: set[asyncio.Future[Outcome]] = set()
        if isinstance(command, OperationCommand):
            waiting = self._answers.pop(command.operation_id, waiting)
        for future in waiting:
            _fail(future, error)
        return performer is not None or bool(waiting)

    def fail_all(self, error: VigilError) -> None:
        for performer in self._performing.values():
            _fail(performer, error)
        for operation_id in tuple(self._answers):
            self.dropped(operation_id, error)


async def _settled(future: asyncio.Future[T]) -> None:
    """Wait for a future without cancelling it when the wait is cancelled."""
    await asyncio.wait([future])


def _fail(future: asyncio.Future[Any], error: VigilError) -> None:
    if not future.done():
        future.set_exception(error)


def _forget(future: asyncio.Future[Any]) -> None:
    """Nobody reads it any more; asyncio shall not report its exception as lost."""
    if not future.cancel() and not future.cancelled():
        future.exception()
