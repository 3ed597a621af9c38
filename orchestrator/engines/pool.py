"""``EnginePool``: the ``Seats`` of several engines behind one Vigil.

A session goes to the engine with the most room, among those that answer, keep up and are not being drained;
of equals its own id chooses. Nothing waits here: where there is no place, the caller is told when to come
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bridges.circuit import Clock, EngineState
from bridges.duplex_client.link import LinkError, LinkOptions
from orchestrator.backends.native.seat import UNCONFIRMED
from orchestrator.engines.health import Health
from orchestrator.engines.pace import Pace
from orchestrator.engines.placement import weight
from orchestrator.engines.places import EngineSpec, Place, Places, PlaceState
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, ResourceExhausted

_log = logging.getLogger(__name__)

LINGER_S = 35.0
"""An engine keeps a lost session for 30 s and looks every 5 s."""
RETRY_S = 5.0
"""To be told where nothing better is known."""
_FIXED = "full-duplex engines are named where the service is started; drain what is to be taken away"
CLOSE_FIRST_S, CLOSE_MAX_S = 1.0, 10.0
"""Between attempts to close a session whose end nobody confirmed."""


class _Engine:
    """One engine as the pool sees it."""

    def __init__(self, spec: EngineSpec, clock: Clock, linger_s: float) -> None:
        self.spec = spec
        self.places = Places(spec, linger_s)
        self.health = Health(clock)
        self.pace = Pace()
        self.draining = False
        self.away = False
        """Nothing listened there when it was looked at last; openings are tried all the same."""
        self.counts = {"taken": 0, "opened": 0, "failed": 0, "unconfirmed": 0, "close_retries": 0}

    def admits(self, now: float, rollover: bool) -> bool:
        """``rollover``: its session is admitted already, so an engine that is behind still takes it."""
        if self.draining or self.health.rests_s or self.places.room(rollover) <= 0:
            return False
        if self.health.sick and self.places.count(PlaceState.OPENING):
            return False
        return rollover or not self.pace.behind(now)

    def headroom(self, rollover: bool) -> float:
        return self.places.room(rollover) / self.spec.max_sessions

    def free_in(self, now: float, rollover: bool) -> float:
        """Seconds after which asking again makes sense."""
        if self.health.rests_s:
            return self.health.rests_s
        frees_at = self.places.frees_at()
        if self.places.room(rollover) <= 0 and frees_at is not None:
            return frees_at - now
        return RETRY_S


class EngineSeat:
    """See ``orchestrator.backends.native.seat.Seat``."""

    def __init__(self, pool: EnginePool, engine: _Engine, place: Place) -> None:
        self._pool = pool
        self._engine = engine
        self._place = place

    @property
    def engine(self) -> str:
        return self._engine.spec.name

    @property
    def options(self) -> LinkOptions:
        return self._engine.spec.options

    def opened(self) -> None:
        if self._place.state is PlaceState.OPENING:
            self._engine.counts["opened"] += 1
            self._engine.away = False
            self._engine.health.answered()
        self._engine.places.opened(self._place)

    def failed(self, code: str) -> None:
        if self._place.state is not PlaceState.OPENING:
            return
        self._engine.counts["failed"] += 1
        self._engine.health.failed(code, self._place.taken_at)
        if code in UNCONFIRMED:
            self.lost()
        else:
            self.freed()

    def freed(self) -> None:
        self._engine.places.free(self._place)

    def lost(self, close: Callable[[], Awaitable[bool]] | None = None) -> None:
        self._pool.linger(self._engine, self._place, close)

    def paced(self, unit_ms: int, took_ms: float) -> None:
        if self._place.state is PlaceState.OPEN:
            self._engine.pace.saw(self._pool.now(), unit_ms, took_ms)


class EnginePool:
    """Implements ``Seats``.

    :param linger_s: how long a place stays taken whose end nobody confirmed
    """

    def __init__(self, engines: Sequence[EngineSpec], clock: Clock, *, linger_s: float = LINGER_S) -> None:
        if len({spec.name for spec in engines}) < len(engines):
            raise ValueError("two engines have one name")
        self._clock = clock
        self._engines = {spec.name: _Engine(spec, clock, linger_s) for spec in engines}
        self.refused = 0
        """Sessions that found no place."""
        self.beside = 0
        """Sessions of other processes, on the same engines."""
        self._closers: set[asyncio.Task[None]] = set()
        self._over = False

    def now(self) -> float:
        return self._clock.now()

    async def take(self, session_id: str, *, rollover: bool = False) -> EngineSeat:
        """See ``Seats.take``. Never suspends, so that a cancelled caller loses no place."""
        now = self._expire()
        able = [e for e in self._engines.values() if e.admits(now, rollover)]
        if not able or not (rollover or self._room()):
            self.refused += 1
            raise self._refusal(now, rollover)
        engine = max(able, key=lambda e: (e.headroom(rollover), weight(session_id, e.spec.name)))
        engine.counts["taken"] += 1
        return EngineSeat(self, engine, engine.places.take(session_id, now))

    # --- what operators and watchers say ------------------------------------------------------------------

    def drain(self, name: str, draining: bool = True) -> None:
        """Take the engine out of placement, or back in; its sessions leave it as they end or roll over.
        Raises ``KeyError`` for an unknown engine."""
        self._engines[name].draining = draining

    def seen(self, name: str, instance: str | None) -> None:
        """The engine that runs now, by anything that a restart changes; ``None``: it does not say."""
        self._engines[name].away = False
        if instance is not None:
            self._engines[name].places.seen(instance)

    def away(self, name: str) -> None:
        """Nothing listens there."""
        self._engines[name].away = True

    @property
    def capacity(self) -> int:
        """Sessions that are admitted at a time, on all engines that are not being drained."""
        return sum(e.spec.admits for e in self._engines.values() if not e.draining)

    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        """By engine: ``sessions`` it holds or opens, ``closing`` places whose end nobody confirmed yet,
        ``expired`` ones that were freed by time alone, how it keeps up and what its openings came to."""
        now = self._expire()
        return {name: _figures(engine, now) for name, engine in self._engines.items()}

    async def add(self, url: str) -> str:
        raise InvalidRequest(_FIXED, code="engines_fixed")

    async def remove(self, name: str) -> None:
        if name not in self._engines:
            raise KeyError(name)
        raise InvalidRequest(_FIXED, code="engines_fixed")

    async def aclose(self) -> None:
        """Stop trying to close what nobody confirmed, for good."""
        self._over = True
        for task in tuple(self._closers):
            task.cancel()
        await asyncio.gather(*self._closers, return_exceptions=True)

    # --- places ---------------------------------------------------------------------------------------

    def linger(self, engine: _Engine, place: Place, close: Callable[[], Awaitable[bool]] | None) -> None:
        """The end of a place's session is not confirmed; ``close`` is tried until it is."""
        if not engine.places.lost(place, self.now()):
            return
        engine.counts["unconfirmed"] += 1
        _log.warning(
            "engine %s did not confirm the end of a session; its place stays taken", engine.spec.name
        )
        if close is not None and not self._over:
            task = asyncio.get_running_loop().create_task(self._close(engine, place, close))
            self._closers.add(task)
            task.add_done_callback(self._closers.discard)

    async def _close(self, engine: _Engine, place: Place, close: Callable[[], Awaitable[bool]]) -> None:
        wait = CLOSE_FIRST_S
        while True:
            await self._clock.sleep(wait)
            wait = min(CLOSE_MAX_S, 2 * wait)
            self._expire()
            if place.state is not PlaceState.LINGERING:
                return
            engine.counts["close_retries"] += 1
            try:
                gone = await close()
            except (LinkError, OSError):
                gone = False
            if gone:
                engine.places.free(place)
                return

    def _expire(self) -> float:
        now = self.now()
        for engine in self._engines.values():
            engine.places.expire(now)
        return now

    def _room(self) -> bool:
        """Sessions that rolled over to another engine than their own leave places free that are not to be
        had: all engines together keep one for each of them, and all processes together no more than that."""
        used = sum(e.places.used for e in self._engines.values() if not e.draining)
        return used + self.beside < self.capacity

    def _refusal(self, now: float, rollover: bool) -> ResourceExhausted | EngineUnavailable:
        active = [e for e in self._engines.values() if not e.draining]
        waits = [e.free_in(now, rollover) for e in active]
        retry = min(60.0, max(1.0, min(waits, default=RETRY_S)))
        if active and all(e.health.sick for e in active):
            return EngineUnavailable("no engine answers now; try again later", retry_after_s=retry)
        return ResourceExhausted(
            "every place on the engines is taken; close a session or try again later", retry_after_s=retry
        )


def _figures(engine: _Engine, now: float) -> dict[str, Any]:
    places, health = engine.places, engine.health
    return {
        "sessions": places.count(PlaceState.OPENING) + places.count(PlaceState.OPEN),
        "opening": places.count(PlaceState.OPENING),
        "closing": places.count(PlaceState.LINGERING),
        "limit": engine.spec.max_sessions,
        "kept": engine.spec.kept,
        "expired": places.expired,
        "real_time_factor": round(engine.pace.factor(now), 4),
        "rests_s": round(health.rests_s, 3),
        "state": _state(engine, now),
        "answers": not (engine.health.sick or engine.away),
        "draining": engine.draining,
        **engine.counts,
    }


def _state(engine: _Engine, now: float) -> str:
    """``draining``; ``down``, ``late`` or ``wedged`` (``bridges.circuit``); ``behind``; ``up``."""
    if engine.draining:
        return "draining"
    if engine.health.sick:
        return engine.health.state.value
    if engine.away:
        return EngineState.DOWN.value
    return "behind" if engine.pace.behind(now) else "up"
