"""Arbitrary openings, ends, failures and times over several engines.

No engine ever holds more than its limit, no admission takes a place that is kept, nobody is refused while a
healthy engine has room, and once all sessions are over every place is free again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.engines.pool import LINGER_S, EnginePool
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted
from tests.engines.pools import spec


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


class Engines(RuleBasedStateMachine):
    @initialize(limits=st.lists(st.integers(1, 4), min_size=1, max_size=3), rolls_over=st.booleans())
    def start(self, limits, rolls_over):
        self.clock = Hand()
        self.limits = {f"e{n}": limit for n, limit in enumerate(limits)}
        self.kept = {name: int(rolls_over and limit > 1) for name, limit in self.limits.items()}
        self.pool = EnginePool(
            [spec(name, m, rolls_over=rolls_over) for name, m in self.limits.items()], self.clock
        )
        self.seats: list[Any] = []
        self.opened: list[Any] = []
        self.ended: list[Any] = []
        self.draining: set[str] = set()
        self.count = 0

    def used(self, name: str) -> int:
        figures = self.pool.statistics()[name]
        return figures["sessions"] + figures["closing"]

    @rule()
    def fill(self):
        """Sessions come until no more are let in."""
        count = None
        while count != len(self.seats):
            count = len(self.seats)
            self.take(rollover=False)
        for seat in self.seats:
            seat.opened()
        self.opened += self.seats
        self.seats = []

    @rule(rollover=st.booleans())
    def takes(self, rollover):
        self.take(rollover)

    def take(self, rollover: bool) -> None:
        self.count += 1
        figures = self.pool.statistics()
        before = {name: self.used(name) for name in self.limits}
        active = [name for name in self.limits if name not in self.draining]
        room = sum(self.limits[n] - self.kept[n] - before[n] for n in active)
        healthy = [n for n in active if figures[n]["state"] == "up" and not figures[n]["rests_s"]]
        able = [n for n in healthy if before[n] < self.limits[n] - (0 if rollover else self.kept[n])]
        try:
            seat = run(self.pool.take(f"s{self.count}", rollover=rollover))
        except (ResourceExhausted, EngineUnavailable) as refused:
            assert refused.retry_after_s is not None and 1 <= refused.retry_after_s <= 60
            assert not able or not (rollover or room > 0)
            return
        self.seats.append(seat)
        assert seat.engine in active and figures[seat.engine]["rests_s"] == 0
        if not rollover:
            assert room > 0 and before[seat.engine] < self.limits[seat.engine] - self.kept[seat.engine]
            assert figures[seat.engine]["state"] != "behind"
        if figures[seat.engine]["state"] in ("down", "late", "wedged"):
            assert figures[seat.engine]["opening"] == 0, "one opening at a time tries a sick engine"

    @precondition(lambda self: self.seats)
    @rule(
        data=st.data(),
        code=st.sampled_from(
            [None, None, None, "timeout", "connect_failed", "bad_event", "resource_exhausted"]
        ),
    )
    def answer(self, data, code):
        seat = self.seats.pop(data.draw(st.integers(0, len(self.seats) - 1)))
        if code is None:
            seat.opened()
            self.opened.append(seat)
        else:
            seat.failed(code)
            self.ended.append(seat)

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), confirmed=st.booleans())
    def end(self, data, confirmed):
        seat = self.opened.pop(data.draw(st.integers(0, len(self.opened) - 1)))
        if confirmed:
            seat.freed()
        else:
            seat.lost()
        self.ended.append(seat)

    @precondition(lambda self: self.opened)
    @rule(factor=st.sampled_from([0.1, 0.5, 1.5]), data=st.data())
    def pace(self, factor, data):
        seat = data.draw(st.sampled_from(self.opened))
        for _ in range(20):
            seat.paced(1000, 1000 * factor)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def late_words(self, data):
        seat = data.draw(st.sampled_from(self.ended))
        before = self.pool.statistics()[seat.engine]["sessions"]
        seat.opened()
        seat.failed("timeout")
        seat.lost()
        assert self.pool.statistics()[seat.engine]["sessions"] == before

    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data, draining):
        name = data.draw(st.sampled_from(sorted(self.limits)))
        self.pool.drain(name, draining)
        (self.draining.add if draining else self.draining.discard)(name)

    @rule(data=st.data(), instance=st.sampled_from(["1", "2"]))
    def seen(self, data, instance):
        self.pool.seen(data.draw(st.sampled_from(sorted(self.limits))), instance)

    @rule(seconds=st.sampled_from([0.5, 5.0, 16.0, LINGER_S]))
    def time(self, seconds):
        self.clock.time += seconds

    @invariant()
    def within_limits(self):
        if hasattr(self, "pool"):
            for name, limit in self.limits.items():
                assert 0 <= self.used(name) <= limit
            held = sum(figures["sessions"] for figures in self.pool.statistics().values())
            assert held == len(self.seats) + len(self.opened)

    def teardown(self):
        if hasattr(self, "pool"):
            for seat in (*self.seats, *self.opened):
                seat.lost()
            self.clock.time += LINGER_S
            assert all(self.used(name) == 0 for name in self.limits)


TestEngines = Engines.TestCase
TestEngines.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
