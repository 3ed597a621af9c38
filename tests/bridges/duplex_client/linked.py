"""A link to a scripted engine over a real socket, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvloop

from bridges.circuit import Clock
from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import AudioChunk, EngineEvent, EngineUnit, LinkOptions, SpokenText
from tests.fakes.duplex_engine import DuplexEngine, ScaledClock

SESSION = {
    "modalities": ["text", "audio"],
    "ref_audio": "data:audio/wav;base64,AAAA",
    "extra_body": {"auto_response": True},
}
T = TypeVar("T")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""The service runs on the second; what a socket says of a write comes from the loop."""


def run_on(loop: str, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(work)


def unit(number: int, *, loud: bool = True, frames: tuple[bytes, ...] = ()) -> EngineUnit:
    """A second of sound whose samples all tell its number."""
    level = 1000 + number if loud else 0
    pcm = level.to_bytes(2, "little") * 16000
    return EngineUnit(pcm=pcm, frames=frames, duration_ms=1000, end_ms=1000 * (number + 1))


class Linked:
    """A link whose events are gathered as they come."""

    def __init__(self, link: DuplexLink, *, reading: bool = True) -> None:
        self.link = link
        self.events: list[EngineEvent] = []
        self._grew = asyncio.Event()
        self._task = asyncio.create_task(self._gather()) if reading else None

    async def _gather(self) -> None:
        async for event in self.link.events():
            self.events.append(event)
            self._grew.set()

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(SpokenText))

    @property
    def pcm(self) -> bytes:
        return b"".join(event.pcm for event in self.of(AudioChunk))

    async def until(self, true: Callable[[], Any], seconds: float = 60.0) -> None:
        """Wait for events until this is true of them."""
        async with asyncio.timeout(seconds):
            while not true():
                self._grew.clear()
                await self._grew.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def options(engine: DuplexEngine, **changed: Any) -> LinkOptions:
    return LinkOptions(engine.url, engine.profile.model, **changed)


@asynccontextmanager
async def linked(
    engine: DuplexEngine,
    session: dict[str, Any] = SESSION,
    *,
    clock: Clock | None = None,
    reading: bool = True,
    opening: bool = True,
    **changed: Any,
) -> AsyncIterator[Linked]:
    """An open link; closed at the end. Without a ``clock`` in real time, less a busy machine's pauses."""
    link = DuplexLink(options(engine, **changed), clock=clock or ScaledClock(), jitter=lambda: 0.0)
    one = Linked(link, reading=reading)
    try:
        if opening:
            await link.open(session)
        yield one
    finally:
        await link.close("test_over")
        await one.stop()
