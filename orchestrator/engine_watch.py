"""Whether the engine is alive, judged by real answers: those of live ticks, or of a one-token request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from bridges.circuit import EngineState as Circuit
from orchestrator.api.context import EngineState
from orchestrator.session.backend import Clock


class Pinged(Protocol):
    """What the watch needs of an engine bridge."""

    @property
    def state(self) -> Circuit: ...
    def statistics(self) -> Mapping[str, Any]:
        """``last_answer_at``: monotonic seconds of the newest real answer, or ``None``.
        ``denied``: whoever is there takes no request."""

    async def ping(self, timeout_s: float) -> bool: ...


class EngineWatch:
    """Asks the engine when nobody else has been answered for a while.

    :param period_s: how often; :param ping_s: deadline of an answer
    """

    def __init__(self, engine: Pinged, clock: Clock, *, period_s: float, ping_s: float) -> None:
        self._engine = engine
        self._clock = clock
        self._period_s = period_s
        self._ping_s = ping_s

    async def run(self) -> NoReturn:
        while True:
            age = self._age()
            if age is None or age >= self._period_s:
                await self._engine.ping(self._ping_s)
                await self._clock.sleep(self._period_s)
            else:
                await self._clock.sleep(self._period_s - age)

    def state(self) -> EngineState:
        """``ready`` needs an answer within the last two rounds, and no sign of death since."""
        age, circuit = self._age(), self._engine.state
        if circuit is Circuit.DOWN:
            denied = self._engine.statistics()["denied"]
            told = "another model or key is wanted there" if denied else "no connection to the engine"
            return EngineState(False, "dead", f"{told}{_since(age)}")
        if circuit is Circuit.WEDGED:
            return EngineState(False, "wedged", f"the engine takes requests and answers none{_since(age)}")
        if age is None:
            return EngineState(False, "starting", "the engine has not answered a request yet")
        lately = age <= 2 * self._period_s + self._ping_s
        if circuit is Circuit.LATE or not lately:
            return EngineState(lately, "slow", f"the engine answers late{_since(age)}")
        return EngineState(True, "ready", f"the engine answered {age:.1f} s ago")

    def _age(self) -> float | None:
        answered = self._engine.statistics()["last_answer_at"]
        return None if answered is None else self._clock.now() - answered


def _since(age: float | None) -> str:
    return "" if age is None else f"; its last answer was {age:.1f} s ago"
