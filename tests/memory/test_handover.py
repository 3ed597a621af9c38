"""Prewarming in steps, and when a switch is due."""

from __future__ import annotations

from statistics import median

import pytest

from memory.facts import Prewarmed
from memory.handover import (
    CHASES,
    FAILURES,
    PATIENCE,
    SMALL_STEP_TOKENS,
    STEP_TOKENS,
    Draft,
    Handover,
    prewarm,
)
from memory.plan import Head, Section, Text, Turn, WantPrewarm, WantSummary
from tests.memory.driver import Driver
from tests.memory.test_window import turn

HEAD = Head(3, "system", (Section("summaries", "text"),))


def handover(pieces: int = 0) -> Handover:
    draft = Draft(HEAD, 100, 0, 0, 0, 0, "chunk", 0)
    return Handover(
        draft, [Head(3, "system", (Section("summaries", "t" * n),)) for n in range(1, pieces + 1)]
    )


def turns(count: int, tokens: int = 300) -> list:
    return [turn(seq, tokens=tokens) for seq in range(count)]


def carry_out(ready: Handover, all_turns: list) -> list[int]:
    steps = []
    while want := ready.want(1, all_turns):
        assert want.head == 3 and not want.plan.generate and want.plan.open_turn is None
        steps.append(want.turns)
        ready.prewarmed(want.turns, True, len(all_turns))
    return steps


def test_steps_grow_by_at_most_2048_tokens_and_have_distinct_identities() -> None:
    steps = carry_out(handover(pieces=2), turns(20))
    assert steps[:2] == [-2, -1] and steps[-1] == 20
    assert len(set(steps)) == len(steps)
    sizes = [b - a for a, b in zip([0, *steps[2:]], steps[2:], strict=False)]
    assert all(size * 300 <= STEP_TOKENS for size in sizes)


def test_only_the_steps_that_follow_an_answer_are_large() -> None:
    """The next tick is then far away; a later step may be what it has to wait for."""
    ready, all_turns = handover(), turns(60, tokens=200)
    sizes = []
    for answered in (False, False, False, False, True, False, False):
        if answered:
            ready.answered()
        want = ready.want(1, all_turns)
        sizes.append((want.turns - ready.warm_turns) * 200)
        ready.prewarmed(want.turns, True, 60)
    large, small = STEP_TOKENS // 200 * 200, SMALL_STEP_TOKENS // 200 * 200
    assert sizes == [large, large, small, small, large, large, small]


def test_a_turn_larger_than_a_step_goes_alone() -> None:
    assert carry_out(handover(), turns(3, tokens=5000)) == [1, 2, 3]


def test_a_head_without_turns_is_warmed_too() -> None:
    ready = handover()
    assert not ready.ready(turns(0))
    assert carry_out(ready, []) == [0]
    assert ready.ready(turns(0))


def test_all_turns_have_to_be_warm() -> None:
    ready, all_turns = handover(), turns(10)
    ready.prewarmed(ready.want(1, all_turns).turns, True, 10)
    assert not ready.ready(turns(10))
    carry_out(ready, all_turns)
    assert ready.ready(turns(10))


def test_turns_that_keep_outrunning_prewarms_do_not_hold_the_switch_for_ever() -> None:
    ready = handover()
    carry_out(ready, turns(3))
    assert not ready.ready(turns(4))
    for _ in range(CHASES):
        ready.answered()
    assert not ready.ready(turns(4)), "the newest turn is cold"
    ready.prewarmed(3, True, 4, flight=3)
    assert ready.ready(turns(4)) and not ready.ready(turns(5))
    for _ in range(PATIENCE):
        ready.answered()
    assert ready.ready(turns(9))


def test_failed_prewarms_are_passed_over_and_then_given_up() -> None:
    ready, all_turns = handover(pieces=1), turns(3)
    ready.prewarmed(-1, False, 3)
    assert ready.want(1, all_turns).turns == 3 and not ready.ready(turns(3))
    for _ in range(FAILURES - 1):
        ready.prewarmed(3, False, 3)
    assert ready.ready(turns(3))


def test_with_the_engines_cache_gone_there_is_nothing_to_wait_for() -> None:
    ready = handover(pieces=3)
    ready.cold()
    assert ready.ready(turns(50))


def test_prewarm_goes_on_from_what_is_warm() -> None:
    want = prewarm(0, HEAD, turns(30), 10)
    assert 10 < want.turns <= 17 and len(want.plan.turns) == want.turns


def test_a_step_that_was_outrun_takes_the_turn_in_flight_along() -> None:
    ready, all_turns = handover(), turns(3)
    flight = Turn(7, (Text("now"),), None)
    first = ready.want(1, all_turns, flight)
    assert first and first.open_tick is None
    ready.prewarmed(first.turns, True, 3)
    ready.answered()
    again = ready.want(1, turns(4), flight)
    assert again and (again.turns, again.open_tick, again.plan.open_turn) == (4, 7, flight)
    large = prewarm(1, HEAD, turns(30), 0, flight)
    assert large.open_tick is None, "the flight comes with the last step only"


@pytest.mark.parametrize(("takes", "most"), [(1, 1.5), (2, 3.5)])
def test_where_every_step_is_outrun_a_window_still_begins_at_about_the_cost_of_a_tick(
    takes: int, most: float
) -> None:
    """Ticks back to back. A prewarm is sent as soon as it is wanted and the one before is done; it takes
    ``takes`` halves of a tick. One that takes a whole tick is outrun by it whatever it takes along."""
    driver = Driver(chunk_frames=20)
    under_way: tuple[int, WantPrewarm] | None = None
    for half in range(240):
        if half % 2:
            driver.answer()
            for want in driver.wants(WantSummary):
                driver.land(want)
        else:
            driver.frame()
            driver.begin()
        if under_way and under_way[0] <= half:
            step = under_way[1]
            prompt, _ = driver.cache.ask(step.plan)
            driver.apply(
                Prewarmed(
                    head=step.head, turns=step.turns, open_tick=step.open_tick, ok=True, prompt_tokens=prompt
                )
            )
            under_way = None
        if under_way is None and (steps := driver.wants(WantPrewarm)):
            under_way = half + takes, steps[0]
    assert len(driver.switches) >= 4
    assert max(driver.uncached[5:]) < most * median(driver.uncached)
