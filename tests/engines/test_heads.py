"""What sessions will have to remember is learned from those that there are, and were.

Until enough ended, or have a memory that is full, what was thought holds, or more where there is more.
Sessions that leave early make room for others, those that stay take it, and what is there is never thought
to be less than it is.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.live_tick import LiveTick
from orchestrator.engines.heads import SETTLED_TICKS, Growth, Heads
from orchestrator.engines.room import Caches, Need, Priority, Room

GROWTH = Growth(thought=9_000, full=18_000, ticks=1_000)
ENOUGH = 4


def test_what_was_thought_holds_until_enough_have_ended() -> None:
    heads = Heads(GROWTH, ENOUGH)
    assert heads.tokens() == 9_000
    stay(heads, ENOUGH, 1_000)
    assert heads.tokens() == 9_000, "they have only begun"
    for number in range(ENOUGH):
        visit(heads, f"v{number}", 1_000, 1_500)
    assert heads.tokens() == 4_500, "short memories, but no less than half of what was thought"


def test_memories_that_are_larger_than_was_thought_count_at_once() -> None:
    """Long instructions are at the head from the beginning."""
    heads = Heads(GROWTH, ENOUGH)
    stay(heads, ENOUGH, 14_000)
    assert heads.tokens() == 14_000
    stay(heads, ENOUGH, 30_000)
    assert heads.tokens() == 30_000, "more than can be is still what is there"


def test_who_goes_elsewhere_or_hardly_came_has_not_ended() -> None:
    heads = Heads(GROWTH, ENOUGH)
    stay(heads, ENOUGH, 1_000)
    for number in range(ENOUGH):
        visit(heads, f"v{number}", 1_000, 1_500, over=False)
        heads.told(f"w{number}", 1_000)
        heads.left(f"w{number}", over=True)
    assert heads.tokens() == 9_000


def test_those_that_stay_are_not_taken_for_short_ones_because_others_leave() -> None:
    heads = Heads(GROWTH, ENOUGH)
    stay(heads, ENOUGH, 500)
    for number in range(ENOUGH):
        visit(heads, f"v{number}", 500, 500)
    before = heads.tokens()
    stay(heads, ENOUGH, 8_500)
    assert before == 4_500 and heads.tokens() > 12_000


def test_a_memory_that_is_full_grows_no_more() -> None:
    """Cameras that never leave, with summaries of a few words."""
    heads = Heads(GROWTH, ENOUGH)
    stay(heads, ENOUGH, 500)
    for _ in range(GROWTH.ticks):
        stay(heads, ENOUGH, 5_000)
    assert heads.tokens() == 5_000


steps = st.tuples(st.integers(0, 12), st.integers(0, 25_000), st.sampled_from(["told", "over", "elsewhere"]))


@given(st.lists(steps, max_size=120))
def test_it_is_never_less_than_there_is_nor_more_than_can_be(lives: list[tuple[int, int, str]]) -> None:
    heads, there = Heads(GROWTH, ENOUGH), dict[str, int]()
    for number, tokens, what in lives:
        if what == "told":
            heads.told(f"s{number}", tokens)
            there[f"s{number}"] = tokens
        else:
            heads.left(f"s{number}", over=what == "over")
            there.pop(f"s{number}", None)
        mean = sum(there.values()) / len(there) if there else 0
        if len(there) >= ENOUGH:
            assert mean - 1 <= heads.tokens() <= max(GROWTH.full, *there.values())
        assert heads.tokens() >= GROWTH.thought // 2


KV = 346_000
NEED = Need(9_200, 18_400, 11_000 // 60, 204, 8, 108, 1)
"""Of sessions with a memory of hours; told once a minute here, not once a second."""


@pytest.mark.parametrize(
    ("life", "begins_with", "more"),
    [
        (lambda r: r.expovariate(1 / 5), 600, 3),
        (lambda r: r.expovariate(1 / 30), 600, 0.5),
        (lambda r: r.expovariate(1 / 120), 600, -3),
        (lambda r: 1e9 if r.random() < 0.1 else r.expovariate(1 / 5), 600, -1.5),
        (lambda r: r.expovariate(1 / 30), 12_600, -4),
    ],
    ids=["minutes", "half an hour", "hours", "some for good", "long instructions"],
)
def test_short_memories_let_more_sessions_in_and_long_ones_are_not_overbooked(
    life: Callable[[Random], float], begins_with: int, more: int
) -> None:
    thought, overbooked = twelve_hours(life, begins_with, told=False)
    learned, still = twelve_hours(life, begins_with, told=True)
    assert still <= max(0.01, overbooked * 0.6)
    assert learned - thought >= more


def twelve_hours(life: Callable[[Random], float], begins_with: int, *, told: bool) -> tuple[float, float]:
    """More come than are admitted: how many are there on average, and the share of the time in which their
    windows take more than there is."""
    random, room = Random(2), Room(Caches(NEED, KV, None))
    lives: dict[str, tuple[int, float, float]] = {}
    there, over = list[int](), 0
    for minute in range(12 * 60):
        for number in range(4):
            if room.full(Priority.NORMAL, 60.0 * minute) is None:
                session = f"s{minute}.{number}"
                room.enter(session, Priority.NORMAL, 60.0 * minute)
                lives[session] = minute, minute + life(random), 100 * random.random()
        taken = 0.0
        for session, (came, goes, phase) in list(lives.items()):
            if minute >= goes:
                room.leave(session, over=True)
                del lives[session]
                continue
            chunks = (minute - came) * 0.6
            head = round(begins_with + min(17_500, 300 * min(10, chunks) + 108 * chunks))
            known = head if told else None
            tick = LiveTick(0.1, 1.0, 1_000, 1_000, turn_tokens=204, head_tokens=known)
            room.answered(session, 60.0 * minute, tick)
            frames = (phase + 60 * (minute - came)) % 100
            taken += head + (8 + frames) * 204
            taken += (head + 8 * 204) if frames < 10 else 0  # two windows live
        there.append(len(lives))
        over += taken > KV
    return sum(there) / len(there), over / len(there)


def visit(heads: Heads, session: str, first: int, last: int, *, over: bool = True) -> None:
    for _ in range(SETTLED_TICKS):
        heads.told(session, first)
    heads.told(session, last)
    heads.left(session, over=over)


def stay(heads: Heads, sessions: int, tokens: int) -> None:
    for number in range(sessions):
        heads.told(f"s{number}", tokens)
