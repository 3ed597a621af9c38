"""An answered tick: counts teach the meter, and the chunk closes on the tick that fills it."""

from __future__ import annotations

from memory.facts import TickAnswered
from memory.plan import WantSummary
from tests.memory.driver import GENERIC, Driver


def test_a_turn_of_words_teaches_nothing_of_pictures() -> None:
    """Words are overestimated on purpose; a window of pictures planned by that would not fit."""
    driver = Driver(chunk_frames=100, max_images=32, context_tokens=8192)
    driver.run(9, summary_after=10**6)
    scale = driver.memory.parts.meter.turn_scale
    driver.ask("what is new?")
    driver.tick(frame=False)
    assert driver.memory.parts.meter.turn_scale == scale
    for _ in range(60):  # nothing is counted while gated; ``Driver.check`` holds every plan to the context
        driver.tick(gated=True)


def test_counts_give_the_size_of_a_turn() -> None:
    driver = Driver()
    for _ in range(4):
        driver.tick()
    turns = driver.memory.parts.live_window.turns
    assert abs(turns[2].tokens - turns[3].tokens) <= 1 and 260 < turns[3].tokens < 290
    whole = driver.memory.parts.live_window.anchor
    assert whole == driver.memory.window_tokens and whole > 4 * turns[3].tokens


def test_after_gated_ticks_sizes_are_estimates_until_the_next_count() -> None:
    driver = Driver()
    driver.tick()
    counted = driver.memory.window_tokens
    driver.tick(gated=True)
    driver.tick(gated=True)
    assert driver.memory.window_tokens > counted + 2 * 256
    driver.tick()
    assert driver.memory.parts.live_window.anchor == driver.memory.window_tokens


def test_an_empty_answer_is_stored_as_silence() -> None:
    driver = Driver(GENERIC)
    driver.frame()
    driver.begin()
    driver.apply(TickAnswered(tick=0, media_time_ms=0, action="silence", said="", said_is_generated=False))
    assert driver.memory.plan().turns[0].said == "<silence>"


def test_a_chunk_closes_on_the_tick_that_reaches_it() -> None:
    driver = Driver(chunk_frames=20, context_tokens=131_072)
    for _ in range(19):
        driver.tick()
    assert driver.memory.chunk_index == 0
    driver.frame()
    driver.frame()
    driver.frame()
    driver.tick(frame=False)
    [want] = driver.wants(WantSummary)
    assert driver.memory.chunk_index == 1
    # Three frames ride the last tick; with the five turns before it that is the overlap of eight.
    assert (want.start_ms, want.end_ms, len(want.frames)) == (0, 14_000, 14)


def test_a_last_turn_wider_than_the_overlap_is_carried_whole() -> None:
    driver = Driver(chunk_frames=10, overlap_frames=2, context_tokens=131_072)
    for _ in range(8):
        driver.tick()
    for _ in range(4):
        driver.frame()
    driver.tick(frame=False)
    [want] = driver.wants(WantSummary)
    assert (want.end_ms, len(want.frames)) == (8000, 8)


def test_an_incomplete_answer_is_an_answer() -> None:
    """Text was emitted before the stream broke: it is what was said, and nothing is asked again."""
    driver = Driver()
    driver.frame()
    driver.begin()
    driver.apply(
        TickAnswered(tick=0, media_time_ms=0, action="response", said="</response> The do", text="The do",
                     said_is_generated=False, status="incomplete", response_id="r1")
    )  # fmt: skip
    plan = driver.memory.plan()
    assert plan.turns[0].said == "</response> The do"
    assert not plan.open_turn.user[1:]
    assert driver.memory.qa == ("#1 [Remark@0.0s] The do",)
