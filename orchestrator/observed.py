"""A backend whose outputs are seen by the composition root before the session takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from orchestrator.session.backend import (
    BackendOutput,
    Capabilities,
    SessionBackend,
    SessionConfig,
    TickDone,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import EngineUnavailable


class Observed:
    """Passes everything on.

    :param on_output: told of every output, in order, before the session is
    :param on_closed: awaited once what is kept of the session is complete, with the reason given first
    :param frames: taken before, where a session goes on after a restart
    :param on_append: told of every append's operation id as it comes in
    """

    def __init__(
        self,
        backend: SessionBackend,
        on_output: Callable[[BackendOutput], None],
        on_closed: Callable[[str], Awaitable[None]],
        frames: int = 0,
        on_append: Callable[[str], None] | None = None,
    ) -> None:
        self._backend = backend
        self._on_output = on_output
        self._on_closed = on_closed
        self._on_append = on_append
        self._closed = False
        self._reason = ""
        self.frames = frames
        """Frames taken so far."""
        self.newest_ms = 0
        """Capture time of the newest of them."""
        self._decided_ms = 0

    @property
    def lag_s(self) -> float:
        """How far decisions are behind the newest frame, on the media clock."""
        return max(0, self.newest_ms - self._decided_ms) / 1000

    def capabilities(self) -> Capabilities:
        return self._backend.capabilities()

    async def open(self, config: SessionConfig) -> None:
        await self._backend.open(config)

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        if self._on_append is not None:
            self._on_append(operation_id)
        await self._backend.append(unit, fence, operation_id)
        self.frames += len(unit.frames)
        self.newest_ms = max(self.newest_ms, *(frame.media_time_ms for frame in unit.frames), 0)

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        await self._backend.tell(fact, fence)

    async def commit(self, fence: Fence, create_response: bool) -> None:
        await self._backend.commit(fence, create_response)

    async def update(self, config: SessionConfig) -> int | None:
        return await self._backend.update(config)

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        await self._backend.cancel(cancelled, next_fence)

    async def clear(self) -> None:
        await self._backend.clear()

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        await self._backend.playback(response_id, fence, played_ms, committed_ms)

    async def close(self, reason: str) -> None:
        self._reason = self._reason or reason
        try:
            await self._backend.close(reason)
        except EngineUnavailable:
            # Only the engine has not let go of it; what is kept of the session is complete.
            await self._end(self._reason)
            raise
        await self._end(self._reason)

    async def _end(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            await self._on_closed(reason)

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        async for output in self._backend.outputs():
            if isinstance(output, TickDone) and output.error_code is None:
                self._decided_ms = round(1000 * (output.record.get("media_time_s") or 0))
            self._on_output(output)
            yield output
