"""Arbitrary lives of sessions and engines: both come, go, fail and are drained, at the worst of moments.

An engine's sessions are those whose home it is, or will be at their next window, and its room counts just
these. No session's home is an engine that was removed, nobody waits where places are free, and what was
granted is given back. Once all sessions are over nothing of them is left on any engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bridges.circuit import EngineState
from bridges.engine import ChatRequest, Deadlines
from orchestrator.backends.live_tick import LiveTick
from orchestrator.engines.fleet import COLD_AT_A_TIME, Fleet, Home, Host
from orchestrator.engines.room import Priority, Room
from orchestrator.runtime.permits import Permits
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted
from tests.engines.rooms import holding
from tests.engines.test_fleet import Named
from tests.fakes.clock import VirtualClock, settle

ANY = st.integers(0, 2)
"""The same few are met again and again; those that came last are their like."""


class Session:
    """:param asked: the engine that was asked when a tick runs; ``turn``: what it waits for"""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.asked: Host | None = None
        self.turn: asyncio.Task[Any] | None = None
        self.returns = False

    async def ask(self) -> None:
        await self.home.permits.live(self.home.session)
        self.asked = self.home.host
        async for _ in self.home.chat.chat(
            ChatRequest([], {}, Deadlines(1, 1), "s", "decision"), lambda _: b""
        ):
            pass


class Engines(RuleBasedStateMachine):
    @initialize(engines=st.integers(1, 3), most=st.sampled_from([None, 3, 12]))
    def start(self, engines: int, most: int | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.most, self.count = most, engines
        self.clock = VirtualClock()
        self.fleet = Fleet([self.host(f"e{n}") for n in range(engines)], self.clock)
        self.sessions: list[Session] = []
        self.gone: list[Host] = []
        self.came = 0

    def host(self, name: str) -> Host:
        return Host(name, Named(), Permits(1), Room(holding(self.most)), self.clock)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def begin(self, session: Session, coroutine: Coroutine[Any, Any, Any]) -> None:
        session.turn = self.loop.create_task(coroutine)
        self.run(settle())

    def some(self, number: int) -> Session | None:
        return self.sessions[number % len(self.sessions)] if self.sessions else None

    def some_host(self, number: int) -> Host:
        return self.fleet.hosts[number % len(self.fleet.hosts)]

    # --- engines ------------------------------------------------------------------------------------------

    @rule(number=ANY, state=st.sampled_from([EngineState.UP, EngineState.DOWN, EngineState.WEDGED]))
    def lives_or_dies(self, number: int, state: EngineState) -> None:
        self.some_host(number).chat.state = state  # type: ignore[misc]

    @rule(number=ANY, draining=st.booleans())
    def drains(self, number: int, draining: bool) -> None:
        self.fleet.drain(self.some_host(number).name, draining)

    @rule()
    def adds(self) -> None:
        if len(self.fleet.hosts) < 4:
            self.count += 1
            self.fleet.add(self.host(f"e{self.count}"))

    @rule(number=ANY)
    def removes(self, number: int) -> None:
        host = self.some_host(number)
        try:
            self.gone.append(self.fleet.remove(host.name))
        except ValueError:
            assert host in self.fleet.hosts
        else:
            assert not host.homes

    # --- sessions -----------------------------------------------------------------------------------------

    @rule(many=st.sampled_from([1, 2, 12]), priority=st.sampled_from(Priority))
    def come(self, many: int, priority: Priority) -> None:
        for _ in range(many):
            self.came += 1
            try:
                home = self.fleet.home(f"s{self.came}", priority, "local")
            except (EngineUnavailable, ResourceExhausted):
                continue
            assert not home.host.down and not home.host.draining
            self.sessions.append(Session(home))

    @rule(number=ANY)
    def goes(self, number: int) -> None:
        if session := self.some(number):
            self.end(session)

    def end(self, session: Session) -> None:
        self.sessions.remove(session)
        if session.turn is not None:
            session.turn.cancel()
            self.run(settle())
        if session.asked is not None:
            session.home.permits.done(session.home.session)
        session.home.leave()

    @rule(number=ANY)
    def hands_over(self, number: int) -> None:
        if session := self.some(number):
            session.home.handover_begun()

    @rule()
    def all_hand_over(self) -> None:
        for session in self.sessions:
            session.home.handover_begun()

    @rule()
    def all_switch(self) -> None:
        for number in range(len(self.sessions)):
            self.switches(number)

    @rule(number=ANY)
    def switches(self, number: int) -> None:
        if session := self.some(number):
            was, healthy = session.home.host, not session.home.host.down
            session.home.switched()
            assert session.home.host is was or not session.home.host.down
            assert session.home.next is None or session.home.host is was
            assert not (healthy and session.home.host.down)

    @rule(number=ANY)
    def asks(self, number: int) -> None:
        session = self.some(number)
        if session and (session.turn is None or session.turn.done()) and session.asked is None:
            self.begin(session, session.ask())

    @rule(number=ANY)
    def is_answered(self, number: int) -> None:
        session = self.some(number)
        if session and session.asked is not None:
            session.home.permits.done(session.home.session)
            session.home.answered(LiveTick(0.1, 1.0, kept=1, promised=1))
            session.asked = None

    @rule(number=ANY)
    def fails(self, number: int) -> None:
        """A session that was moved while it asked is where it is to be, unless that is dead as well."""
        session = self.some(number)
        if session and session.asked is not None and session.turn is not None and session.turn.done():
            asked, now = session.asked, session.home.host
            session.home.permits.done(session.home.session)
            session.asked = None
            self.begin(session, session.home.lost())
            session.returns = True
            if asked is not now and not now.down:
                assert session.home.host is now

    @rule()
    def an_engine_fails_everyone(self) -> None:
        for number, session in enumerate(self.sessions):
            if session.home.host.down:
                self.asks(number)
                self.fails(number)

    # --- what holds ---------------------------------------------------------------------------------------

    @invariant()
    def places(self) -> None:
        self.run(settle())
        for host in self.fleet.hosts:
            here = {s.home for s in self.sessions if host in (s.home.host, s.home.next)}
            assert host.homes == here and len(host.room) == len(here)
        for session in self.sessions:
            assert session.home.host in self.fleet.hosts
            assert (
                session.home.next in (None, *self.fleet.hosts) and session.home.next is not session.home.host
            )

    @invariant()
    def lanes(self) -> None:
        self.run(settle())
        for host in self.fleet.hosts:
            cold = host.cold.statistics()
            assert cold["reading"] <= min(COLD_AT_A_TIME, len(host.room))
            assert not cold["waiting"] or cold["reading"] == COLD_AT_A_TIME, "a place is free"
        waiting = sum(host.cold.statistics()["waiting"] for host in self.fleet.hosts)
        asleep = [s for s in self.sessions if s.returns and s.turn is not None and not s.turn.done()]
        for session in self.sessions:
            session.returns = session in asleep
        assert waiting == len(asleep), "who waits, waits where it is"

    @invariant()
    def permits(self) -> None:
        self.run(settle())
        running = waiting = 0
        for host in (*self.fleet.hosts, *self.gone):
            figures = host.permits.statistics()
            running += figures["running"]["live"]
            waiting += figures["waiting"]["live"]
            assert not figures["waiting"]["live"] or figures["running"]["live"]
        assert running == sum(session.asked is not None for session in self.sessions)
        pending = [s for s in self.sessions if s.turn is not None and not s.turn.done() and not s.returns]
        assert waiting == len(pending)

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        for session in tuple(self.sessions):
            self.end(session)
        self.run(settle())
        for host in (*self.fleet.hosts, *self.gone):
            assert len(host.room) == 0 and not host.homes
            assert host.cold.statistics() == {"reading": 0, "waiting": 0}
            assert not any(host.permits.statistics()[key]["live"] for key in ("running", "waiting"))
        self.loop.close()


TestFleet = Engines.TestCase
TestFleet.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
