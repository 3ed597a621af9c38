"""``Fleet``: several engines of single requests behind one Vigil, and where each session is at home.

A session stays on its engine as long as that answers: its cache is there. It leaves when a window ends anyway
and its engine is being drained or carries too much (the next window is then warmed on the new engine, so that
the switch costs what every switch costs), or when its engine died.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from bridges.circuit import Clock
from bridges.circuit import EngineState as Circuit
from bridges.engine import ChatEngine, ChatEvent, ChatRequest, ImageBytes
from orchestrator.backends.live_tick import LiveTick
from orchestrator.engines.phases import Phases
from orchestrator.engines.placement import chosen, overloaded
from orchestrator.engines.returning import ColdLane
from orchestrator.engines.room import Priority, Room
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted

COLD_AT_A_TIME = 4
"""Sessions that one engine reads in anew at a time: each is a prompt of a whole window."""
RETRY_S = 5.0
"""To be told where nobody has room."""
WEIGHTS = {Priority.LOW: 1, Priority.NORMAL: 4, Priority.HIGH: 16}
"""Shares of an engine that is short, by class of the tenant."""


class Permits(Protocol):
    """Who may use one engine now; see ``orchestrator.runtime.permits``."""

    async def live(self, session_id: str, *, tenant: str = ..., weight: int = ...) -> None: ...
    async def background(
        self, session_id: str, kind: str, *, beside: bool = ..., tenant: str = ..., weight: int = ...
    ) -> None: ...
    def read(self, session_id: str, kind: str) -> None: ...
    def done(self, session_id: str, kind: str = ...) -> None: ...
    def statistics(self) -> Mapping[str, Mapping[str, int]]: ...
    def longest_wait_s(self) -> Mapping[str, float]: ...


class Judged(ChatEngine, Protocol):
    """An engine whose state is judged by its answers."""

    @property
    def state(self) -> Circuit: ...
    def statistics(self) -> Mapping[str, Any]: ...


class Host:
    """One engine and everything that its sessions share.

    :param suspect_lane: frames that may have killed it are shown to it one at a time
    """

    def __init__(self, name: str, chat: Judged, permits: Permits, room: Room, clock: Clock) -> None:
        self.name = name
        self.chat = chat
        self.permits = permits
        self.room = room
        self.homes: set[Home] = set()
        self.phases = Phases()
        self.cold = ColdLane(COLD_AT_A_TIME, clock)
        self.suspect_lane = asyncio.Lock()
        self.draining = False

    def enter(self, home: Home) -> None:
        """A session is here from now on, or prepares to be."""
        self.homes.add(home)
        self.room.enter(home.session, home.priority, home.fleet.now())

    def leave(self, home: Home, *, over: bool) -> None:
        """``over``: the session ended; else it is elsewhere, or does not come."""
        self.homes.discard(home)
        self.phases.leave(home.session)
        self.room.leave(home.session, over=over)
        self.cold.leave(home.session)

    @property
    def over(self) -> bool:
        """More sessions stay than its caches carry, now that it is known what they take."""
        most = self.room.most
        leaving = sum(home.host is self and home.next is not None for home in self.homes)
        return most is not None and len(self.room) - leaving > most

    @property
    def down(self) -> bool:
        return self.chat.state in (Circuit.DOWN, Circuit.WEDGED)


class Fleet:
    """:param hosts: at least one; their names differ"""

    def __init__(self, hosts: Sequence[Host], clock: Clock) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._clock = clock
        self.refused = 0
        """Sessions that found no room."""
        self.moves = {"drained": 0, "balanced": 0, "died": 0}
        """Sessions that changed their engine, by reason."""
        self.beside = 0
        """Sessions of other processes, at the same engines."""

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(self._hosts.values())

    def now(self) -> float:
        return self._clock.now()

    def home(self, session: str, priority: Priority, tenant: str, warm_at: str | None = None) -> Home:
        """A place for a session of a tenant.

        :param warm_at: the engine that answered it last, if it goes on after a restart: its window may be in
            the cache there still. Where that one is gone, or full, it is placed as a new one
        :raises ResourceExhausted: every engine that answers is full; says of the best one why
        :raises EngineUnavailable: none answers, or all are being drained
        """
        open_to = {name: host for name, host in self._hosts.items() if not host.draining and not host.down}
        if not open_to:
            self.refused += 1
            raise EngineUnavailable("no engine takes sessions now", retry_after_s=RETRY_S)
        now = self._clock.now()
        full = {name: host.room.full(priority, now, self._beside) for name, host in open_to.items()}
        loads = {name: len(host.room) for name, host in open_to.items()}
        admits = {name: why is None for name, why in full.items()}
        name = warm_at if warm_at is not None and admits.get(warm_at) else chosen(session, loads, admits)
        if name is None:
            self.refused += 1
            emptiest = min(loads, key=lambda each: loads[each])
            raise ResourceExhausted(
                f"every engine is full; of {emptiest}: {full[emptiest]}. Try again later",
                retry_after_s=RETRY_S,
            )
        return Home(self, open_to[name], session, priority, tenant)

    def elsewhere(self, home: Home, *, urgent: bool) -> Host | None:
        """Another engine for a session; ``urgent``: its own died, so that a late engine is good enough."""
        others = {
            host.name: host
            for host in self._hosts.values()
            if host is not home.host and not host.draining and not host.down
        }
        now = self._clock.now()
        admits = {
            name: host.room.holds_one_more(self._beside)
            if urgent
            else host.room.full(home.priority, now, self._beside) is None
            for name, host in others.items()
        }
        name = chosen(home.session, {name: len(host.room) for name, host in others.items()}, admits)
        return None if name is None else others[name]

    @property
    def _beside(self) -> int:
        """Of other processes' sessions those at one engine: they go by the same rules, so evenly."""
        open_to = sum(not host.draining and not host.down for host in self._hosts.values())
        return math.ceil(self.beside / max(1, open_to))

    def should_leave(self, home: Home) -> str | None:
        """Why a session had better go on elsewhere once that is free."""
        if home.host.draining:
            return "drained"
        loads = {each.name: len(each.room) for each in self._hosts.values() if not each.draining | each.down}
        return "balanced" if home.host.over or overloaded(len(home.host.room), loads) else None

    def drain(self, name: str, draining: bool) -> None:
        """Take no new sessions, and let those that are there leave at their next window; or take them again.

        :raises KeyError: there is no such engine
        """
        self._hosts[name].draining = draining

    def add(self, host: Host) -> None:
        """:raises ValueError: there is one of this name"""
        if host.name in self._hosts:
            raise ValueError(f"there is an engine {host.name} already")
        self._hosts[host.name] = host

    def remove(self, name: str) -> Host:
        """Forget an engine. Sessions that are still on it go on elsewhere at once, read in anew; drain it
        first, and they go when it costs nothing.

        :raises KeyError: there is no such engine
        :raises ValueError: it is the last one, or the others can't take its sessions: it is being drained now
        """
        host = self._hosts[name]
        if len(self._hosts) == 1:
            raise ValueError(f"{name} is the only engine")
        host.draining = True
        stay = [home for home in tuple(host.homes) if home.host is host and not home.evict()]
        if stay:
            raise ValueError(f"nobody has room for {len(stay)} sessions that are on {name}")
        for home in tuple(host.homes):  # those that only prepared to come
            home.handover_begun()
        del self._hosts[name]
        return host

    def statistics(self) -> dict[str, dict[str, float]]:
        """By engine."""
        now = self._clock.now()
        return {
            name: {
                **host.room.statistics(now),
                "most": float(host.room.most or 0),
                "draining": float(host.draining),
                "up": float(not host.down),
                **{f"ticks_{of}": float(number) for of, number in host.room.ticks.items()},
                **{f"cold_{key}": float(value) for key, value in host.cold.statistics().items()},
            }
            for name, host in self._hosts.items()
        }


class Home:
    """Where one session is at home. Close it with ``leave``.

    ``chat`` is the engine as the session asks it: prewarms go where the next window will be, all else to
    where the session is. ``permits`` waits at the engine that is about to be asked.
    """

    def __init__(self, fleet: Fleet, host: Host, session: str, priority: Priority, tenant: str) -> None:
        self.fleet = fleet
        self.host = host
        self.next: Host | None = None
        self.session = session
        self.priority = priority
        self.tenant = tenant
        self.chat: ChatEngine = _Route(self)
        self.permits = HomePermits(self)
        self._why: str | None = None
        self._asked: Host | None = None
        host.enter(self)

    @property
    def name(self) -> str:
        return self.host.name

    def turn_after(self, moment: float, period_s: float) -> float | None:
        """When its next tick begins, where Vigil says when; see ``Phases``."""
        return self.host.phases.turn_after(self.session, moment, period_s)

    @property
    def suspect_lane(self) -> asyncio.Lock:
        return self.host.suspect_lane

    @property
    def leaves_soon(self) -> bool:
        """Its engine is being drained: the next window had better come early."""
        return self.host.draining and self.next is None and self._elsewhere() is not None

    def handover_begun(self) -> None:
        """The next window's head is frozen: from now on it is warmed, here or elsewhere."""
        self._give_up_next()
        self._why = self.fleet.should_leave(self)
        if self._why is not None and (host := self._elsewhere()) is not None:
            self.next = host
            host.enter(self)

    def switched(self) -> None:
        """The next window is the live one. One that was warmed on an engine that died is read in at home."""
        host = self.ahead_host()
        if host is not self.host and self._why is not None:
            self._move(host, self._why)

    async def lost(self) -> bool:
        """The engine gives no answers. True: the session is on another one, and it is its turn there."""
        if self._asked in (None, self.host) or self.host.down:  # else it was moved while it asked
            host = self.next if self.next is not None and not self.next.down else None
            host = host or self.fleet.elsewhere(self, urgent=True)
            if host is None:
                return False
            host.enter(self)
            self._move(host, "died")
        waited = None
        while waited is not self.host:  # who is moved on meanwhile waits there
            waited = self.host
            await waited.cold.enter(self.session, self.priority)
        return True

    def answered(self, tick: LiveTick) -> None:
        """A live tick was answered."""
        self.host.cold.leave(self.session)
        self.host.room.answered(self.session, self.fleet.now(), tick)

    def refused(self, waited_s: float, period_s: float) -> None:
        """A live tick found no turn in time; see ``Room.refused``."""
        self.host.room.refused(self.session, self.fleet.now(), waited_s / period_s)

    def leave(self) -> None:
        """The session is over."""
        self._give_up_next()
        self.host.leave(self, over=True)

    def evict(self) -> bool:
        """Go on elsewhere at once, with nothing in the cache there. False: nobody takes the session."""
        host = self.fleet.elsewhere(self, urgent=True)
        if host is None:
            return False
        host.enter(self)
        self._move(host, "drained")
        return True

    def ahead_host(self) -> Host:
        """Where the next window is being warmed."""
        if self.next is not None and self.next.down:
            self._give_up_next()
        return self.next or self.host

    def asks(self) -> Host:
        """Where the session is, and is asking now: what fails then is told by ``lost``."""
        self._asked = self.host
        return self.host

    def _elsewhere(self) -> Host | None:
        return self.fleet.elsewhere(self, urgent=False)

    def _give_up_next(self) -> None:
        if self.next is not None:
            self.next.leave(self, over=False)
            self.next = None

    def _move(self, host: Host, why: str) -> None:
        if self.next is host:
            self.next = None
        self._give_up_next()
        self.host.leave(self, over=False)
        self.host = host
        self.fleet.moves[why] += 1


class _Route:
    """``ChatEngine`` of a session: whichever engine that is now."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]:
        host = self._home.ahead_host() if request.purpose.startswith("prewarm") else self._home.asks()
        return host.chat.chat(request, images)

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return await self._home.host.chat.tokenize(messages, images)

    async def ping(self, timeout_s: float) -> bool:
        return await self._home.asks().chat.ping(timeout_s)

    async def aclose(self) -> None:
        """The engines belong to the fleet."""


class HomePermits:
    """``TickPermits`` of a session. What was granted is given back where it was granted."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._held: dict[str, deque[Permits]] = {}

    async def live(self, session_id: str) -> None:
        home = self._home
        while True:
            permits = self._of("live")
            await permits.live(session_id, tenant=home.tenant, weight=WEIGHTS[home.priority])
            if permits is self._of("live"):
                break
            permits.done(session_id)  # it was moved while it waited
        self._held.setdefault("live", deque()).append(permits)

    async def background(self, session_id: str, kind: str, *, beside: bool = False) -> None:
        home = self._home
        while True:
            permits = self._of(kind)
            weight = WEIGHTS[home.priority]
            await permits.background(session_id, kind, beside=beside, tenant=home.tenant, weight=weight)
            if permits is self._of(kind):
                break
            permits.done(session_id, kind)  # it was moved while it waited
        self._held.setdefault(kind, deque()).append(permits)

    def _of(self, kind: str) -> Permits:
        """Of the engine that work of this kind would ask now."""
        home = self._home
        return (home.ahead_host() if kind == "prewarm" else home.host).permits

    def read(self, session_id: str, kind: str) -> None:
        self._held[kind][0].read(session_id, kind)

    def done(self, session_id: str, kind: str = "live") -> None:
        self._held[kind].popleft().done(session_id, kind)
