"""A ``SessionBackend`` that does what a test says: it records calls, blocks, raises and yields on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.session.backend import (
    Action,
    BackendOutput,
    Capabilities,
    Closed,
    Decision,
    SessionConfig,
    TextDelta,
    TickDone,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact
from orchestrator.session.units import FrameInput, InputUnit

START = Fence()
CAPABILITIES = Capabilities(chunk_period_ms=1000, optional_input_modalities=("audio", "video"))


def frame(data: bytes = b"jpeg", media_time_ms: int = 0) -> InputUnit:
    """A unit of one frame; the bytes are never decoded here."""
    return InputUnit((FrameInput(data, media_time_ms),))


@dataclass(frozen=True)
class Call:
    method: str
    arguments: tuple[Any, ...]


class ScriptedBackend:
    """``hold(method)`` blocks calls of that method until ``free``; ``fail`` makes the next one raise."""

    def __init__(self, capabilities: Capabilities = CAPABILITIES) -> None:
        self.calls: list[Call] = []
        self.finished: list[Call] = []
        self.cancelled: list[Call] = []
        self.closed = False
        self.planned_tick: int | None = None  # what updates return
        self._capabilities = capabilities
        self._gates: dict[str, asyncio.Event] = {}
        self._failures: dict[str, list[Exception]] = {}
        self._outputs: asyncio.Queue[BackendOutput | Exception | None] = asyncio.Queue(maxsize=4096)

    # --- what a test calls ---

    def hold(self, method: str) -> None:
        self._gates[method] = asyncio.Event()

    def free(self, method: str) -> None:
        self._gates.pop(method).set()

    def free_all(self) -> None:
        for method in tuple(self._gates):
            self.free(method)

    def fail(self, method: str, error: Exception, times: int = 1) -> None:
        self._failures.setdefault(method, []).extend([error] * times)

    def emit(self, *outputs: BackendOutput) -> None:
        for output in outputs:
            self._outputs.put_nowait(output)

    def break_outputs(self, error: Exception | None = None) -> None:
        """Make the output stream raise, or (``None``) end without ``Closed``."""
        self._outputs.put_nowait(error)

    def speak(
        self, text: str, *, fence: Fence = START, tick: int = 0, operations: tuple[str, ...] = ()
    ) -> None:
        """A whole speaking tick."""
        self.emit(
            TickStarted(fence, tick, operations),
            Decision(fence, tick, Action.RESPONSE, 0.9),
            TextDelta(fence, text),
            TurnEnd(fence),
            tick_done(fence, tick, operations, action="response", text=text),
        )

    def stay_silent(self, *, fence: Fence = START, tick: int = 0, operations: tuple[str, ...] = ()) -> None:
        """A whole silent tick."""
        self.emit(
            TickStarted(fence, tick, operations),
            Decision(fence, tick, Action.SILENCE, 0.1, "model"),
            tick_done(fence, tick, operations, action="silence", reason="model"),
        )

    def methods(self) -> list[str]:
        """Names of the calls begun so far, in order."""
        return [call.method for call in self.calls]

    # --- SessionBackend ---

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def open(self, config: SessionConfig) -> None:
        await self._called("open", config)

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        await self._called("append", unit, fence, operation_id)

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        await self._called("tell", fact, fence)

    async def commit(self, fence: Fence, create_response: bool) -> None:
        await self._called("commit", fence, create_response)

    async def update(self, config: SessionConfig) -> int | None:
        await self._called("update", config)
        return self.planned_tick

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        await self._called("cancel", cancelled, next_fence)

    async def clear(self) -> None:
        await self._called("clear")

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        await self._called("playback", response_id, fence, played_ms, committed_ms)

    async def close(self, reason: str) -> None:
        await self._called("close", reason)
        if not self.closed:
            self.closed = True
            self.emit(Closed(reason))

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        while True:
            output = await self._outputs.get()
            if output is None:
                return
            if isinstance(output, Exception):
                raise output
            yield output
            if isinstance(output, Closed):
                return

    async def _called(self, method: str, *arguments: Any) -> None:
        call = Call(method, arguments)
        self.calls.append(call)
        try:
            if (gate := self._gates.get(method)) is not None:
                await gate.wait()
            if failures := self._failures.get(method):
                raise failures.pop(0)
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        self.finished.append(call)


def tick_done(
    fence: Fence, tick: int, operations: tuple[str, ...], error_code: str | None = None, **record: Any
) -> TickDone:
    return TickDone(fence, tick, operations, {"tick": tick, **record}, error_code)


class ListLog:
    """Implements ``FactLog`` in a list of (kind, data)."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Mapping[str, Any]]] = []
        self.flushes = 0

    def append(self, kind: str, data: Mapping[str, Any]) -> int:
        self.entries.append((kind, data))
        return len(self.entries)

    async def flush(self, seq: int | None = None) -> None:
        self.flushes += 1

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.entries]
