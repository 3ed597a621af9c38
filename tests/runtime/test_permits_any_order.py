"""Any order of coming, being done and giving up, of any kind, tenant and weight.

Bounds are kept. Nobody waits for a place that is free. Live ticks go before prewarms, and these before
summaries, but nothing lets more than its patience go first. Tenants that wait for turns of one kind get them
by their weights, those of one tenant in the order in which they came, and one that was given up is nobody's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.runtime.permits import KINDS, LIVE, PREWARM, SUMMARY, Permits
from tests.fakes.clock import settle

PATIENCE = {PREWARM: 3, SUMMARY: 5}
ANY = st.integers(0, 5)
WEIGHTS = {"a": 1, "b": 4, "c": 16}
PAIRS = tuple(combinations(WEIGHTS, 2))


class Waiting:
    """``passed``: turns given to those before it since it came."""

    def __init__(self, number: int, kind: str, tenant: str) -> None:
        self.name, self.kind, self.tenant = f"s{number}", kind, tenant
        self.passed = 0
        self.reads = kind != LIVE
        self.task: asyncio.Task[None]


class Lives(RuleBasedStateMachine):
    @initialize(live=st.integers(1, 3), background=st.integers(1, 2), texts=st.integers(1, 3))
    def start(self, live: int, background: int, texts: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.bounds = {LIVE: live, "background": background, SUMMARY: texts}
        self.time = 0.0
        self.permits = Permits(
            live, background, texts, patience=PATIENCE, now=lambda: self.time, waited=self.given_out
        )
        self.waiting: list[Waiting] = []
        self.holding: list[Waiting] = []
        self.came = 0
        self.had: dict[tuple[str, str], Counter[str]] = {}
        """Live turns of two tenants since both of them wait."""

    def given_out(self, kind: str, seconds: float) -> None:
        """Told at the very moment: whoever waits now was passed over, or comes later."""
        assert seconds >= 0
        told = self.permits.statistics()
        if kind != LIVE and not any(w.kind == kind and w.passed >= PATIENCE[kind] for w in self.waiting):
            assert not told["waiting"][LIVE]
            assert kind == PREWARM or told["running"][LIVE] or not told["waiting"][PREWARM]
        for waiter in self.waiting:
            if KINDS.index(waiter.kind) > KINDS.index(kind):
                waiter.passed += 1

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def settled(self) -> None:
        self.run(settle())
        given = [w for w in self.waiting if w.task.done()]
        for waiter in given:
            self.waiting.remove(waiter)
            self.holding.append(waiter)
        live = [w for w in self.waiting if w.kind == LIVE]
        for waiter in (w for w in given if w.kind == LIVE):
            before = [w for w in live if w.tenant == waiter.tenant and int(w.name[1:]) < int(waiter.name[1:])]
            assert not before, "the first that came is the first that goes"
            for had in self.had.values():
                had[waiter.tenant] += 1
        wait = {w.tenant for w in live}
        self.had = {pair: self.had.get(pair, Counter()) for pair in PAIRS if wait >= set(pair)}

    @rule(
        kind=st.sampled_from(KINDS),
        tenant=st.sampled_from(sorted(WEIGHTS)),
        beside=st.booleans(),
    )
    def comes(self, kind: str, tenant: str, beside: bool) -> None:
        self.came += 1
        waiter = Waiting(self.came, kind, tenant)
        turn = (
            self.permits.live(waiter.name, tenant=tenant, weight=WEIGHTS[tenant])
            if kind == LIVE
            else self.permits.background(
                waiter.name, kind, beside=beside, tenant=tenant, weight=WEIGHTS[tenant]
            )
        )
        waiter.task = self.loop.create_task(turn)
        self.waiting.append(waiter)
        self.settled()

    @rule(tenant=st.sampled_from(sorted(WEIGHTS)), many=st.integers(2, 6))
    def a_crowd_comes(self, tenant: str, many: int) -> None:
        for _ in range(many):
            self.comes(LIVE, tenant, False)

    @rule(number=ANY)
    def has_read(self, number: int) -> None:
        if reading := [w for w in self.holding if w.reads]:
            waiter = reading[number % len(reading)]
            waiter.reads = False
            self.permits.read(waiter.name, waiter.kind)
            self.settled()

    @rule(number=ANY)
    def is_done(self, number: int) -> None:
        if self.holding:
            waiter = self.holding.pop(number % len(self.holding))
            self.permits.done(waiter.name, waiter.kind)
            self.settled()

    @rule(number=ANY)
    def gives_up(self, number: int) -> None:
        if self.waiting:
            waiter = self.waiting.pop(number % len(self.waiting))
            waiter.task.cancel()
            self.settled()

    @rule(many=st.integers(2, 4))
    def those_who_came_first_give_up(self, many: int) -> None:
        """Their deadlines are over."""
        for _ in range(many):
            self.gives_up(0)

    @rule(number=ANY, other=ANY)
    def gives_up_as_it_is_given(self, number: int, other: int) -> None:
        """A permit that comes at the very moment of giving up comes back."""
        if self.waiting and self.holding:
            held = self.holding.pop(other % len(self.holding))
            self.permits.done(held.name, held.kind)
            waiter = self.waiting.pop(number % len(self.waiting))
            waiter.task.cancel()
            self.had.clear()  # whose turn that was is not told
            self.settled()

    @rule(seconds=st.floats(0, 10))
    def time_goes_on(self, seconds: float) -> None:
        self.time += seconds

    @invariant()
    def bounds_are_kept(self) -> None:
        if not hasattr(self, "permits"):
            return
        told = self.permits.statistics()
        counted = Counter(w.kind for w in self.holding)
        assert told["running"] == {kind: counted[kind] for kind in KINDS}
        assert told["running"][LIVE] <= self.bounds[LIVE]
        assert sum(w.reads for w in self.holding) <= self.bounds["background"]
        assert told["running"][SUMMARY] <= self.bounds[SUMMARY]
        assert told["waiting"] == {k: sum(w.kind == k for w in self.waiting) for k in KINDS}

    @invariant()
    def nobody_waits_for_what_is_free(self) -> None:
        if not hasattr(self, "permits"):
            return
        told = self.permits.statistics()
        assert not told["waiting"][LIVE] or told["running"][LIVE] == self.bounds[LIVE]
        free = sum(w.reads for w in self.holding) < self.bounds["background"]
        full = told["running"][SUMMARY] == self.bounds[SUMMARY]
        behind = [w for w in self.waiting if w.kind == PREWARM or (w.kind == SUMMARY and not full)]
        if free and not told["running"][LIVE]:
            assert not behind
        if free:
            assert all(w.passed < PATIENCE[w.kind] for w in behind), "nothing starves"

    @invariant()
    def turns_follow_weights(self) -> None:
        """Whoever gave up meanwhile."""
        for pair, had in getattr(self, "had", {}).items():
            one, other = (had[tenant] / WEIGHTS[tenant] for tenant in pair)
            assert abs(one - other) <= sum(1 / WEIGHTS[tenant] for tenant in pair) + 1e-9

    @invariant()
    def who_waits_longest_is_told(self) -> None:
        if not hasattr(self, "permits"):
            return
        for kind, seconds in self.permits.longest_wait_s().items():
            assert 0 <= seconds <= self.time
            assert any(w.kind == kind for w in self.waiting) or seconds == 0

    def teardown(self) -> None:
        if not hasattr(self, "permits"):
            return
        for waiter in self.waiting:
            waiter.task.cancel()
        self.waiting.clear()
        self.run(settle())
        while self.holding:
            waiter = self.holding.pop()
            self.permits.done(waiter.name, waiter.kind)
        assert not any(self.permits.statistics()["running"].values())
        assert not any(self.permits.statistics()["waiting"].values())
        owing = [queue.owing for queue in self.permits._waiting.values()]
        assert not any(owing), "nobody owes anything to a quiet engine"
        self.loop.close()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)

tenants = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 4, 16]), min_size=2)


async def turns(weights: dict[str, int], kind: str, each: int, order: list[str], gone: int = 0) -> list[str]:
    """Whose turn it is, one after the other, where ``order`` came first and every tenant waits for ``each``.

    ``gone``: turns that the first tenant asks for before all others, and gives up.
    """
    permits, seen = Permits(1), list[str]()

    async def come(name: str, weight: int) -> None:
        if kind == LIVE:
            await permits.live(name, tenant=name, weight=weight)
        else:
            await permits.background(name, kind, tenant=name, weight=weight)

    await come("first", 1)

    async def turn(tenant: str) -> None:
        await come(tenant, weights[tenant])
        seen.append(tenant)
        permits.done(tenant, kind)

    given_up = [asyncio.create_task(turn(order[0])) for _ in range(gone)]
    await settle()
    keeper = asyncio.create_task(turn(order[-1]))
    await settle()
    for task in given_up:
        task.cancel()
    await settle()
    tasks = [asyncio.create_task(turn(tenant)) for _ in range(each) for tenant in order]
    await settle()
    permits.done("first", kind)
    await asyncio.gather(keeper, *tasks)
    return seen


@given(tenants, st.sampled_from(KINDS), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_turns_follow_weights_at_every_moment(weights: dict[str, int], kind: str, random: Any) -> None:
    """The bound of start-time fair queueing: normalised turns of two who wait differ by one turn of each."""
    order = sorted(weights)
    random.shuffle(order)
    seen = asyncio.run(turns(weights, kind, 20, order))
    left = Counter(dict.fromkeys(order, 20))
    left[order[-1]] += 1
    had: Counter[str] = Counter()
    for tenant in seen:
        had[tenant] += 1
        left[tenant] -= 1
        waiting = [each for each in order if left[each]]
        for one in waiting:
            for other in waiting:
                apart = abs(had[one] / weights[one] - had[other] / weights[other])
                assert apart <= 1 / weights[one] + 1 / weights[other] + 1e-9


@given(tenants, st.sampled_from(KINDS), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_turns_that_were_given_up_count_for_nobody(weights: dict[str, int], kind: str, gone: int) -> None:
    order = sorted(weights)
    assert asyncio.run(turns(weights, kind, 5, order, gone)) == asyncio.run(turns(weights, kind, 5, order))
