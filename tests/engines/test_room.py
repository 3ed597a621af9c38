"""Who is admitted to an engine: by what its caches hold, by class, and by how it answered lately."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.live_tick import LiveTick
from orchestrator.engines.room import (
    ENOUGH,
    MEASURED,
    NEWCOMER_S,
    NEWCOMERS,
    WINDOW_S,
    Caches,
    Need,
    Priority,
    Room,
    carries,
)
from tests.engines.rooms import holding

WINDOWS = Need(
    head=3_400, full_head=6_500, full_after=1_000,
    turn=200, least_images=8, most_images=108, image_bytes=1_200_000,
)  # fmt: skip
sizes = st.integers(10, 60_000)  # of smaller ones more sessions would fit than are looked for


@given(sizes, sizes, st.integers(0, 5_000_000))
def test_what_finds_room_fits_and_one_more_does_not(head: int, turn: int, kv: int) -> None:
    need = Need(head, head, 0, turn, 1, 2, 1)
    most = carries(need, kv, None)
    assert most is not None and most >= 1
    assert need.tokens(most + 1) > kv
    assert most == 1 or need.tokens(most) <= kv


@given(st.integers(1, 500))
def test_windows_are_never_all_full_at_once_but_nearly_so_where_they_are_few(sessions: int) -> None:
    tokens = WINDOWS.tokens(sessions)
    assert sessions * (5_000 + 25_000) / 2 <= tokens <= sessions * (25_000 + 5_000)
    assert WINDOWS.tokens(1) == 25_000 + 5_000


def test_the_image_cache_is_a_limit_too() -> None:
    by_tokens = carries(WINDOWS, 10_000_000, None)
    both = carries(WINDOWS, 10_000_000, 2**30)
    assert by_tokens is not None and both is not None and both < 15 < by_tokens
    assert carries(WINDOWS, None, None) is None


def test_smaller_pictures_than_were_thought_of_make_room_once_enough_were_counted() -> None:
    caches = Caches(WINDOWS, 1_000_000, None)
    thought, counted = caches.carry(None, None), caches.carry(100, None)
    assert thought is not None and counted is not None and counted > thought >= 2 * MEASURED
    room = Room(caches)
    settled(room, MEASURED)
    for number in range(MEASURED):
        assert room.most == thought
        answer(room, f"s{number}", 100.0, turn_tokens=100)
    assert room.most == counted
    answer(room, "s0", 100.0, turn_tokens=100 + 100 * MEASURED)
    assert room.most == caches.carry(200, None) == thought, "it is the sum of all windows that must find room"
    room.leave("s0", over=True)
    assert room.most == thought, "too few are left to tell"
    assert Room(Caches(None, 300_000, None)).most is None


def test_an_engine_that_few_are_thought_to_fit_counts_too() -> None:
    caches = Caches(WINDOWS, 250_000, None)
    thought, counted = caches.carry(None, None), caches.carry(100, None)
    assert thought is not None and counted is not None and counted > thought > 4
    assert thought < MEASURED, "so many sessions are never there"
    room = Room(caches)
    settled(room, thought)
    for number in range(thought // 2):
        assert room.most == thought
        answer(room, f"s{number}", 100.0, turn_tokens=100)
    assert room.most == counted


def test_an_engine_that_was_started_anew_with_less_memory_carries_fewer() -> None:
    room = Room(Caches(WINDOWS, 1_000_000, None))
    before = room.most
    room.holds(250_000)
    assert room.most == Caches(WINDOWS, 250_000, None).carry(None, None) != before
    nothing = Room(None)
    nothing.holds(250_000)
    assert nothing.most is None


def test_higher_classes_find_room_that_is_kept_from_lower_ones() -> None:
    room = Room(holding(10), frozenset(Priority))
    settled(room, 8)
    assert room.full(Priority.LOW, 100) is not None
    assert room.full(Priority.NORMAL, 100) is None
    settled(room, 1, first=8)
    assert room.full(Priority.NORMAL, 100) is not None
    assert room.full(Priority.HIGH, 100) is None
    alone = Room(holding(10))
    settled(alone, 9)
    assert alone.full(Priority.NORMAL, 100) is None


def test_few_come_at_a_time_until_they_were_answered() -> None:
    """What many sessions cost shows only when they are answered: a crowd is not let in unseen."""
    room = Room(holding(1000))
    for number in range(NEWCOMERS):
        assert room.full(Priority.NORMAL, 0) is None
        room.enter(f"s{number}", Priority.NORMAL, 0)
    assert room.full(Priority.NORMAL, 0) is not None
    assert room.full(Priority.NORMAL, NEWCOMER_S) is None, "they ask for nothing, so they cost nothing"
    for _ in range(3):
        answer(room, "s0", 1.0)
    assert room.full(Priority.NORMAL, 1) is None


@pytest.mark.usefixtures("admits_as_shipped")
def test_near_its_limit_few_come_at_a_time_until_their_windows_have_filled() -> None:
    """They cost little before that: what all of them cost together would be seen too late."""
    room = Room(Caches(WINDOWS, None, None))
    settled(room, 20)
    window_s = WINDOWS.most_images - WINDOWS.least_images

    def comes(name: str, now: float, late_s: float) -> str | None:
        for _ in range(ENOUGH):
            answer(room, "s1", now, lateness_s=late_s)
        refused = room.full(Priority.NORMAL, now)
        if refused is None:
            room.enter(name, Priority.NORMAL, now)
            answer(room, name, now, lateness_s=late_s)
        return refused

    assert comes("a", 100, 0.3) is None and comes("b", 130, 0.3) is None
    assert "near its limit" in (comes("c", 160, 0.3) or "")
    assert comes("c", 190, 0.2) is None, "an engine with time to spare takes all"
    assert "near its limit" in (comes("d", 100 + window_s, 0.3) or ""), "two are still young"
    assert comes("d", 130 + window_s, 0.3) is None


@pytest.mark.usefixtures("admits_as_shipped")
def test_near_its_limit_an_engine_of_few_sessions_takes_one() -> None:
    room = Room(Caches(WINDOWS, None, None))
    settled(room, 2)
    for _ in range(ENOUGH):
        answer(room, "s1", 100, lateness_s=0.3)
    assert room.full(Priority.NORMAL, 100) is None
    room.enter("a", Priority.NORMAL, 100)
    assert "near its limit" in (room.full(Priority.NORMAL, 101) or "")
    assert room.full(Priority.NORMAL, 101 + NEWCOMER_S) is None, "it asks for nothing, so it costs nothing"


@pytest.mark.usefixtures("admits_as_shipped")
def test_an_engine_that_is_behind_admits_nobody_until_it_has_recovered() -> None:
    room = Room(holding(1000))
    settled(room, 30)
    for number in range(40):
        answer(room, "s1", 200.0, lateness_s=0.6 if number % 10 == 0 else 0.2)
    assert "period" in (room.full(Priority.NORMAL, 200.0) or "")
    for _ in range(30):
        answer(room, "s1", 200.0 + WINDOW_S + 1, lateness_s=0.45)
    assert room.full(Priority.NORMAL, 201.0 + WINDOW_S) is not None, "better, but not yet well"
    for _ in range(30):
        answer(room, "s1", 202.0 + 2 * WINDOW_S, lateness_s=0.35)
    assert room.full(Priority.NORMAL, 202.0 + 2 * WINDOW_S) is None


@given(st.lists(st.floats(0.01, 3.99), min_size=1, max_size=16))
def test_a_session_counts_for_as_much_however_late_it_is_answered(late: list[float]) -> None:
    """Whoever is answered in three periods gives a third of the answers, and no third of the lateness."""
    room = Room(None)
    for number, lateness_s in enumerate(late):
        for _ in range(60 // (1 + int(lateness_s))):
            answer(room, f"s{number}", 200.0, lateness_s=lateness_s)
    assert room.statistics(200.0)["late"] == sorted(late)[int(0.95 * len(late))]


@pytest.mark.usefixtures("admits_as_shipped")
def test_a_few_sessions_whose_frames_are_taken_together_are_enough_to_be_behind() -> None:
    room = Room(holding(1000))
    settled(room, 10)
    for number in range(180):
        answer(room, f"s{number % 9}", 200.0, lateness_s=0.1)
    assert room.full(Priority.NORMAL, 200.0) is None
    for _ in range(5):
        answer(room, "s9", 200.0, lateness_s=3.9)
    assert room.full(Priority.NORMAL, 200.0) is not None


@pytest.mark.usefixtures("admits_as_shipped")
def test_a_session_that_left_takes_its_lateness_along() -> None:
    """On a slow engine a lone client ends its session and opens another one: there is room, as there was."""
    room = Room(holding(1000))
    settled(room, 2)
    for _ in range(40):
        answer(room, "s0", 200.0, lateness_s=1.3)
    assert room.full(Priority.NORMAL, 200.0) is not None, "s0 would be hurt"
    room.leave("s0", over=True)
    assert room.full(Priority.NORMAL, 200.0) is None


def test_an_engine_whose_cache_forgets_admits_nobody() -> None:
    room = Room(holding(1000))
    settled(room, 30)
    for _ in range(40):
        answer(room, "s1", 200.0, kept=500, promised=1000)
    assert "cache" in (room.full(Priority.NORMAL, 200.0) or "")
    assert room.full(Priority.NORMAL, 201.0 + WINDOW_S) is None, "what is old says nothing about now"


def settled(room: Room, sessions: int, *, first: int = 0) -> None:
    """Sessions that came long ago."""
    for number in range(first, first + sessions):
        room.enter(f"s{number}", Priority.NORMAL, -1000)


def answer(
    room: Room,
    session: str,
    now: float,
    *,
    lateness_s: float = 0.2,
    kept: int = 1000,
    promised: int = 1000,
    turn_tokens: int | None = None,
) -> None:
    room.answered(session, now, LiveTick(lateness_s, 1.0, kept, promised, turn_tokens=turn_tokens))
