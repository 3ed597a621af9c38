"""``Track``: the model behind a service as the composition root sees it, of whichever kind it is.

Everything above it is the same for both kinds: registry, keeping, records, metrics, the doors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bridges.frames import FrameBounds
from bridges.timing import Durations
from memory.fold import Memory
from memory.spoken import SpokenMemory
from orchestrator.api.context import Engines, EngineState, TextEngine
from orchestrator.keeping import Kept, Lasting
from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import Capabilities, SessionBackend, SessionConfig

Gauges = Mapping[str, float | Mapping[str, float] | Durations]


@dataclass(frozen=True, slots=True)
class Offer:
    """What every session of the service has.

    :param family: of the model, for people
    :param context_tokens: of one engine request or engine session; 0: not known
    :param defaults: configuration of a session that asks for nothing else
    :param personas: known persona names; ``languages``: known languages
    :param frames: bounds of a picture that a model is shown
    :param over_http: sessions can be driven by single HTTP requests
    :param voice: who speaks the answers of a model that only writes, for people; empty: nobody
    """

    model: str
    family: str
    context_tokens: int
    capabilities: Capabilities
    defaults: SessionConfig
    personas: frozenset[str]
    languages: frozenset[str]
    frames: FrameBounds
    over_http: bool
    voice: str = ""

    @property
    def period_ms(self) -> int:
        return self.capabilities.chunk_period_ms


@dataclass(frozen=True, slots=True)
class Built:
    """One session's backend and what of it can be looked at while it lives.

    :param memory: once it is open
    :param health: plain values for people; ``statistics``: sizes of what waits in it
    """

    backend: SessionBackend
    memory: Callable[[], Memory | SpokenMemory]
    health: Callable[[], Mapping[str, Any]]
    statistics: Callable[[], Mapping[str, Mapping[str, int]]]


class Track(Protocol):
    """:param offer: see ``Offer``; ``lasting``: what a kept session is to be read with"""

    @property
    def offer(self) -> Offer: ...

    @property
    def lasting(self) -> Lasting: ...

    @property
    def runtime(self) -> RuntimeLimits:
        """Deadlines of a session's backend."""

    @property
    def engines(self) -> Engines:
        """Where sessions are placed."""

    @property
    def texts(self) -> TextEngine | None:
        """Plain chat with the engine, where it has that."""

    async def build(self, spec: SessionSpec, kept: Kept) -> Built: ...

    async def watch(self) -> None:
        """Look after the engines until cancelled."""

    def state(self) -> EngineState: ...

    def facts(self) -> Mapping[str, Any]:
        """What is known of the engines, as plain data."""

    def gauges(self, built: tuple[Built, ...]) -> Gauges:
        """Read at each scrape; ``built``: the sessions that live."""

    async def aclose(self) -> None:
        """When every session has ended."""
