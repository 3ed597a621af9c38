"""The places of one engine: taken before a session opens, free when it is really gone. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bridges.duplex_client.link import LinkOptions


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine.

    :param max_sessions: that it holds at a time
    :param rolls_over: one of them is kept for fresh sessions, where there is more than one
    """

    name: str
    options: LinkOptions
    max_sessions: int
    rolls_over: bool

    @property
    def kept(self) -> int:
        return 1 if self.rolls_over and self.max_sessions > 1 else 0

    @property
    def admits(self) -> int:
        """Sessions at a time."""
        return self.max_sessions - self.kept


class PlaceState(StrEnum):
    OPENING = "opening"
    OPEN = "open"
    LINGERING = "lingering"
    """Nobody confirmed the end."""
    FREE = "free"


@dataclass(slots=True, eq=False)
class Place:
    """:param until: when a lingering one is free whatever happens
    :param former: it is on an instance of the engine that runs no more"""

    session_id: str
    taken_at: float
    state: PlaceState = PlaceState.OPENING
    until: float = 0.0
    former: bool = False


class Places:
    """:param linger_s: how long an engine keeps a session that it lost sight of, its reaper included"""

    def __init__(self, spec: EngineSpec, linger_s: float) -> None:
        self._spec = spec
        self._linger_s = linger_s
        self._held: list[Place] = []
        self._instance: str | None = None
        self.expired = 0
        """Places that were freed by time alone."""

    def count(self, state: PlaceState) -> int:
        return sum(place.state is state for place in self._held)

    @property
    def used(self) -> int:
        return len(self._held)

    def take(self, session_id: str, now: float) -> Place:
        """Raises ``ValueError`` where there is none; ask ``room`` first."""
        if self.used >= self._spec.max_sessions:
            raise ValueError(f"engine {self._spec.name} has no place")
        place = Place(session_id, now)
        self._held.append(place)
        return place

    def room(self, rollover: bool) -> int:
        """Places that may be taken now."""
        return (self._spec.max_sessions if rollover else self._spec.admits) - self.used

    def opened(self, place: Place) -> None:
        if place.state is PlaceState.OPENING:
            place.state = PlaceState.OPEN

    def free(self, place: Place) -> bool:
        """False: it was free before."""
        if place.state is PlaceState.FREE:
            return False
        place.state = PlaceState.FREE
        self._held.remove(place)
        return True

    def lost(self, place: Place, now: float) -> bool:
        """True: it lingers from now on."""
        if place.state not in (PlaceState.OPENING, PlaceState.OPEN):
            return False
        if place.former:
            self.free(place)
            return False
        place.state, place.until = PlaceState.LINGERING, now + self._linger_s
        return True

    def expire(self, now: float) -> None:
        for place in [p for p in self._held if p.state is PlaceState.LINGERING and p.until <= now]:
            self.free(place)
            self.expired += 1

    def frees_at(self) -> float | None:
        """When the next lingering place is free at the latest."""
        return min((p.until for p in self._held if p.state is PlaceState.LINGERING), default=None)

    def seen(self, instance: str) -> None:
        """The engine that runs now; a new one knows nothing of the former one's sessions."""
        if self._instance is not None and self._instance != instance:
            for place in list(self._held):
                if place.state is PlaceState.LINGERING:
                    self.free(place)
                else:
                    place.former = True
        self._instance = instance
