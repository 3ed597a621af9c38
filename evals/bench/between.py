"""An engine with something between: passes everything on; whoever watches requests overrides ``chat``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from bridges.circuit import EngineState
from bridges.engine import ChatEvent, ChatRequest, ImageBytes
from orchestrator.backends.replay.engine_call import stream_of
from orchestrator.engines.fleet import Judged


class Between(Judged):
    def __init__(self, engine: Judged) -> None:
        self._engine = engine

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        async with aclosing(stream_of(self._engine, request, images)) as events:
            async for event in events:
                yield event

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return await self._engine.tokenize(messages, images)

    async def ping(self, timeout_s: float) -> bool:
        return await self._engine.ping(timeout_s)

    @property
    def state(self) -> EngineState:
        return self._engine.state

    def statistics(self) -> Mapping[str, Any]:
        return self._engine.statistics()

    async def aclose(self) -> None:
        await self._engine.aclose()
