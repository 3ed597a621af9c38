"""One user turn from what waits: order of its notes, its time tags, and its share of the prompt."""

from __future__ import annotations

from dataclasses import replace

from memory.compose import compose, fits, flight_tokens
from memory.facts import DelegationDone, HeardFact
from memory.plan import Image, Text
from tests.memory.driver import JOYVL, Driver


def texts(driver: Driver) -> list[str]:
    return [part.text for part in driver.memory.plan().open_turn.user if isinstance(part, Text)]


def test_notes_come_in_their_order_before_time_and_pictures() -> None:
    driver = Driver()
    driver.tick("something long", response_id="r1")
    driver.apply(DelegationDone(delegation_id="d", question="who?", text="Ada", ok=True, media_time_ms=0))
    driver.ask("what?")
    driver.apply(HeardFact(response_id="r1", text="some", complete=False, media_time_ms=0))
    driver.frame()
    interrupted, query, delegated, time = texts(driver)
    assert "heard only" in interrupted and query.endswith("what?\n") and "Ada" in delegated
    assert time == "<1.0 seconds>"
    assert isinstance(driver.memory.plan().open_turn.user[-1], Image)


def test_a_tick_without_frames_has_its_time() -> None:
    driver = Driver()
    driver.run(3)
    driver.ask("what?")
    assert texts(driver)[-1] == "<2.0 seconds>"
    plan = driver.begin()
    assert len(plan.open_turn.user) == 2


def test_one_time_tag_for_a_tick_or_one_for_each_picture() -> None:
    for per_image, tags in ((False, 1), (True, 3)):
        driver = Driver(replace(JOYVL, time_tag_per_image=per_image))
        for _ in range(3):
            driver.frame()
        assert len(texts(driver)) == tags


def test_a_text_of_any_length_takes_no_more_than_its_share() -> None:
    driver = Driver(max_images=8, context_tokens=12_000)
    driver.ask("word " * 20_000)
    driver.apply(
        DelegationDone(delegation_id="d", question="q " * 9000, text="a " * 9000, ok=False, media_time_ms=0)
    )
    flight = compose(driver.memory.parts, 0, None)
    assert flight_tokens(driver.memory.parts, flight) < 3 * driver.memory.budget.query_tokens
    driver.tick()


def test_answers_that_exceed_a_tick_ride_the_next_ones_in_order() -> None:
    driver = Driver(max_images=8, context_tokens=12_000)
    for number in range(6):
        question, text = f"q{number}", "a " * 4000
        driver.apply(
            DelegationDone(delegation_id="d", question=question, text=text, ok=True, media_time_ms=0)
        )
    shown = []
    for _ in range(8):
        driver.tick()
        shown.append([n for n in range(6) if f'"q{n}"' in str(driver.plans[-1].open_turn)])
    assert [n for tick in shown for n in tick] == list(range(6))
    assert max(len(tick) for tick in shown) < 6


def test_both_hard_limits_count() -> None:
    driver = Driver(max_images=8, context_tokens=12_000)
    driver.frame()
    parts = driver.memory.parts
    flight = compose(parts, 0, None)
    assert fits(parts, 500, 7, flight)
    assert not fits(parts, 500, 8, flight)
    assert not fits(parts, 11_600, 0, flight)
