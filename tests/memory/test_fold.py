"""The fold runs small and large engines for a long time within their limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.budget import LimitsTooSmall
from memory.facts import (
    DelegationBegun,
    EngineRecovered,
    HeardFact,
    TickAnswered,
    TickFailed,
    parse_fact,
)
from memory.fold import Memory
from memory.plan import WantDecision
from memory.render import plan_bytes
from tests.memory.driver import JOYVL, Driver, blind, count, opened, section

ENGINES = {
    "large": {"chunk_frames": 100, "max_images": 256, "context_tokens": 131072},
    "context 8192, 32 images": {"chunk_frames": 100, "max_images": 32, "context_tokens": 8192},
    "context 12000, 8 images": {"chunk_frames": 100, "max_images": 8, "context_tokens": 12000},
}


@pytest.mark.parametrize("limits", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("summary_after", [1, 20])
def test_six_hundred_ticks(limits: dict[str, int], summary_after: int) -> None:
    """No plan breaks a limit, no shown frame is lost sight of, and the log alone gives the same memory."""
    driver = Driver(**limits)
    seen: list[int] = []
    for _ in range(600):
        plan = driver.tick()
        seen.append(driver.ms)
        forgotten = driver.memory.parts.history.forgotten_before_ms or 0
        assert not blind(plan, seen, forgotten)
        driver.background(summary_after, fails=lambda n: n % 3 == 0)
    assert driver.rebuilt().fingerprint() == driver.memory.fingerprint()


def test_what_is_before_the_turns_is_known_as_the_engine_counts_it() -> None:
    """A head of text that takes far more tokens than was thought; the carried turns are no part of it."""
    driver = Driver(chunk_frames=20, max_images=64, context_tokens=32768)
    driver.ask("Say when the red car stops.")
    seen: list[tuple[int, int]] = []
    for _ in range(120):
        plan = driver.tick()
        counted = count(replace(plan, turns=(), open_turn=None))
        if driver.memory.window_frames > 12:
            seen.append((driver.memory.head_tokens, counted))
        driver.background(1)
    assert len({counted for _, counted in seen}) > 3, "heads have grown"
    assert all(abs(known - counted) <= 100 + counted // 10 for known, counted in seen)


def test_nothing_is_asked_before_the_session_is_opened() -> None:
    memory = Memory(JOYVL)
    with pytest.raises(RuntimeError, match="memory_opened"):
        memory.moves()
    memory.apply(opened())
    with pytest.raises(RuntimeError, match="moves"):
        memory.begin_tick(0)


def test_limits_that_hold_no_turn_are_refused() -> None:
    memory = Memory(JOYVL)
    with pytest.raises(LimitsTooSmall):
        memory.apply(opened(context_tokens=900))


def test_facts_of_others_mean_nothing() -> None:
    driver = Driver()
    before = driver.memory.fingerprint()
    driver.apply(EngineRecovered())
    driver.apply(DelegationBegun(delegation_id="d", question="q", media_time_ms=0, tick=0))
    driver.apply(TickFailed(tick=7, media_time_ms=0, code="engine_timeout"))
    driver.apply(TickAnswered(tick=7, media_time_ms=0, action="silence", said="x", said_is_generated=True))
    assert driver.memory.fingerprint() == before


def test_a_decision_is_wanted_when_something_waits() -> None:
    """A tail fact is urgent: it may fire a tick without a frame. Nothing is wanted while one is in flight."""
    driver = Driver()
    assert not driver.wants(WantDecision)
    driver.frame()
    assert driver.wants(WantDecision) == [WantDecision(urgent=False)]
    driver.ask("what?")
    assert driver.wants(WantDecision) == [WantDecision(urgent=True)]
    driver.begin()
    driver.frame()
    assert not driver.wants(WantDecision)
    driver.answer()
    assert driver.wants(WantDecision) == [WantDecision(urgent=False)]


def test_first_chunks_are_jittered_and_later_ones_are_not() -> None:
    """Sessions that start together do not hand over together."""
    ends = {}
    for jitter in (-0.2, 0.0, 0.2):
        driver = Driver(jitter=jitter, chunk_frames=50, context_tokens=131_072)
        driver.run(150, summary_after=1)
        ends[jitter] = [p.end_ms for p in driver.memory.summaries]
    assert [e[0] for e in ends.values()] == [32_000, 42_000, 52_000]
    assert all(e[1] - e[0] == 50_000 for e in ends.values())


def test_gated_ticks_are_turns_like_others() -> None:
    gated, asked = Driver(), Driver()
    for number in range(5):
        gated.tick(gated=True)
        asked.tick()
        assert gated.plans[number] == asked.plans[number]


def test_a_spoken_answer_without_a_query_is_archived_with_its_time_alone() -> None:
    driver = Driver(chunk_frames=10, context_tokens=32_768)
    driver.run(3)
    driver.tick("look, a dog")
    driver.run(40)
    assert "[Remark@3.0s] look, a dog" in section(driver.plans[-1], "qa")
    assert "Query@" not in section(driver.plans[-1], "qa")


def test_only_what_was_heard_is_remembered_and_the_next_turn_says_so() -> None:
    """The window turn keeps every byte of what was said."""
    driver = Driver(chunk_frames=10, context_tokens=32_768)
    driver.ask("what?")
    driver.tick("the dog sleeps on the mat", response_id="r1")
    heard = HeardFact(response_id="r1", text="the dog", complete=False, media_time_ms=driver.ms)
    driver.apply(heard)
    plan = driver.tick()
    assert "the dog sleeps on the mat" in plan.turns[0].said
    assert "heard only: the dog]" in str(plan.open_turn.user[0])
    driver.run(40)
    assert section(driver.plans[-1], "qa").endswith("[Response@0.0s] the dog")
    assert section(driver.plans[-1], "query").endswith("what?")  # barge-in clears no query


def test_a_report_on_what_was_heard_may_come_before_its_answer() -> None:
    driver = Driver()
    driver.frame()
    driver.begin()
    driver.apply(HeardFact(response_id="r1", text="the", complete=False, media_time_ms=0))
    driver.answer(text="the dog", response_id="r1")
    assert driver.memory.qa == ("#1 [Remark@0.0s] the",)
    assert "heard only: the]" in str(driver.memory.plan().open_turn.user[0])


def test_the_views() -> None:
    driver = Driver(chunk_frames=10, context_tokens=32_768)
    driver.ask("what?")
    driver.run(80)
    memory = driver.memory
    assert memory.head == memory.plan().head and memory.window_index == memory.plan().window
    assert memory.window_frames == len(memory.plan().frames)
    assert memory.query == "what?" and memory.queries == ("what?",) and memory.language == "en"
    assert memory.long_term and memory.summaries and memory.chunk_index > 5
    assert memory.now_ms == driver.ms and memory.in_flight is None
    assert 0 < memory.window_tokens < 32_768


def test_a_log_replayed_in_two_halves_gives_the_same_plans() -> None:
    """Restart anywhere: the plans that follow are the same, byte for byte."""
    driver = Driver(chunk_frames=10, context_tokens=32_768)
    for number in range(60):
        driver.tick("word" if number % 5 == 0 else "")
        if number % 17 == 0:
            driver.ask(f"question {number}")
        driver.background(2)
    memory = Memory(driver.pack)
    windows = {}
    for kind, data in driver.log:
        memory.apply(parse_fact(kind, data))
        if kind == "tick_begun":
            windows[data["tick"]] = plan_bytes(memory.plan()).data
    assert [windows[p.open_turn.tick] for p in driver.plans] == [plan_bytes(p).data for p in driver.plans]
