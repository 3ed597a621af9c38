"""The seam between the replay loop and what decides: the session core in process, or a server over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bridges.frames import FrameBounds

PATIENCE_S = 600.0
"""How long one frame may wait for its decision: an engine that died may be started again meanwhile."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a video is turned into frames: one every ``period_ms``, encoded within ``bounds``."""

    period_ms: int
    bounds: FrameBounds


@dataclass(frozen=True, slots=True)
class Frame:
    """One encoded picture (JPEG or PNG) and its media time, the first of a run being 0."""

    media_time_ms: int
    data: bytes


class Sink(Protocol):
    """Who is told what happens, in the order in which it happens; never blocks."""

    def delta(self, text: str) -> None:
        """A piece of the response of the tick in flight."""

    def tick(self, record: Mapping[str, Any]) -> None:
        """A tick is done: its row of ``decisions.jsonl``."""

    def notice(self, code: str, message: str) -> None:
        """Something to know that is no decision: the engine was lost, a delegated answer came ..."""


class Drive(Protocol):
    """One session. Raises ``ReplayError`` when it can't start or go on."""

    transport: str

    async def prepare(self) -> Sampling:
        """Reach the engine, check the model, and say what frames it takes."""

    async def open(self, sink: Sink) -> None:
        """Begin the session; from now on ``sink`` is told."""

    def engine_facts(self) -> Mapping[str, Any]:
        """What is known of the engine, JSON-ready; ``warnings`` among it is a list of sentences."""

    async def ask(self, text: str) -> None:
        """Set or replace the standing query; it rides the next frame."""

    async def withdraw(self) -> None:
        """Clear the standing query; told to the model with the next frame."""

    async def show(self, frame: Frame, *, lossless: bool) -> None:
        """Hand over a frame and wait until its tick is decided and told to the sink.

        ``lossless``: the source waits for us, so the frame must not be thinned away.
        """

    async def settle(self) -> None:
        """The source is over: wait for the answers of delegated questions, and for the tick they ride."""

    async def close(self) -> None:
        """End the session and what ``prepare`` started; all ticks have been told to the sink. Idempotent."""
