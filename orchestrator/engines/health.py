"""What openings say of an engine, and how long it is left alone after a bad one."""

from __future__ import annotations

from bridges.circuit import Circuit, Clock, EngineState
from bridges.duplex_client.link import LinkCode
from orchestrator.backends.native.seat import FULL, SICK

REST_FIRST_S, REST_MAX_S = 1.0, 60.0
FULL_S = 5.0
"""An engine that says it is full, though places seem free, is asked again after that."""


class Health:
    """One engine's. After a rest one opening at a time tries it, until one succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._circuit = Circuit(clock)
        self._rest_s = REST_FIRST_S
        self._rests_until = float("-inf")
        self._sick = False

    @property
    def state(self) -> EngineState:
        return self._circuit.state

    @property
    def sick(self) -> bool:
        """Its last opening failed through its own fault."""
        return self._sick

    @property
    def rests_s(self) -> float:
        """How much longer it is left alone."""
        return max(0.0, self._rests_until - self._clock.now())

    def answered(self) -> None:
        """A session opened, or a refusal came that is about the request."""
        self._circuit.answered()
        self._sick, self._rest_s = False, REST_FIRST_S
        self._rests_until = float("-inf")

    def failed(self, code: str, started_at: float) -> None:
        """An opening that began at ``started_at`` ended with ``code``."""
        if code == FULL:
            self.answered()
            self._rests_until = self._clock.now() + FULL_S
        elif code not in SICK:
            self.answered()
        else:
            if code == LinkCode.CONNECT_FAILED:
                self._circuit.lost()
            else:
                self._circuit.missed(started_at)
            self._sick = True
            if not self.rests_s:
                self._rests_until = self._clock.now() + self._rest_s
                self._rest_s = min(REST_MAX_S, 2 * self._rest_s)
