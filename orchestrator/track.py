"""``Track``: the model behind a service as the composition root sees it, of whichever kind it is.

Everything above it is the same for both kinds: registry, keeping, records, metrics, the doors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bridges.frames import FrameBounds
from memory.fold import Memory
from memory.spoken import SpokenMemory
from orchestrator.api.context import Engines, EngineState, TextEngine
from orchestrator.api.metrics import ENGINE_STATES
from orchestrator.api.readings import Reading, Readings, named
from orchestrator.keeping import Kept, Lasting
from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import Capabilities, SessionBackend, SessionConfig
from orchestrator.session_sums import Sizes

_SOLVER = {"in_flight": "questions that a solver works on", "waiting": "questions that wait for a solver"}
_SUMMARIZER = {
    "in_flight": ("summarizer_in_flight", "texts that the summarizer writes now"),
    "waiting": ("summarizer_waiting", "texts that wait for the summarizer"),
}


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
    :param turn_after: the first moment after another one at which its engine has its turn for it; ``None``:
        one is as good as another
    """

    backend: SessionBackend
    memory: Callable[[], Memory | SpokenMemory]
    health: Callable[[], Mapping[str, Any]]
    statistics: Callable[[], Mapping[str, Mapping[str, int]]]
    turn_after: Callable[[float], float | None] = lambda moment: None


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

    def beside(self, sessions: int) -> None:
        """So many sessions are at the same engines from other processes."""

    @property
    def refused(self) -> int:
        """Sessions for which no engine had room."""

    def readings(self, sizes: Sizes) -> Readings:
        """Read at each scrape; ``sizes``: of all sessions that live, added up."""

    async def aclose(self) -> None:
        """When every session has ended."""


class Counting(Protocol):
    """What tells figures of its work."""

    def statistics(self) -> Mapping[str, Any]: ...


def helpers_readings(state: EngineState, solvers: Counting | None, summarizer: Counting | None) -> Readings:
    """What both kinds of model tell of their engines as a whole, and of whom they ask besides."""
    told: dict[str, Reading] = {
        "engine_ready": Reading("1 while an engine answers", float(state.ready)),
        "engine_state": Reading(
            "1 for the state of the engines as a whole",
            {each: float(each == state.state) for each in ENGINE_STATES},
            "state",
        ),
    }
    if solvers is not None:
        by_name = solvers.statistics()
        for key, text in _SOLVER.items():
            told[f"solver_{key}"] = Reading(
                text, {name: float(figures[key]) for name, figures in by_name.items()}, "solver"
            )
    if summarizer is not None:
        figures = summarizer.statistics()
        ended = {each: float(figures[each]) for each in ("written", "failed", "cancelled")}
        told |= named(figures, _SUMMARIZER)
        told["summarizer_texts_total"] = Reading("texts asked of the summarizer", ended, "outcome")
    return told
