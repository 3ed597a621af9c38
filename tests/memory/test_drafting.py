"""When a head is due and what its window starts with."""

from __future__ import annotations

from memory.facts import EngineLost, PersonaSet
from memory.plan import WantPrewarm, WantSummary
from tests.memory.driver import Driver, frame_times, head_text

ROOMY = {"context_tokens": 131_072, "max_images": 256}


def test_a_chunk_told_by_text_makes_a_head_due_once() -> None:
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(25, summary_after=10**6)
    assert len(driver.heads) == 1
    driver.land()
    assert len(driver.heads) == 2 and len(driver.switches) == 1  # frozen, not live before it is warm
    driver.run(3, summary_after=10**6)
    assert len(driver.heads) == 2 and [s.reason for s in driver.switches] == ["opened", "chunk"]


def test_a_first_turn_without_a_frame_needs_no_new_head() -> None:
    """A question before the first picture stays in the window with its answer."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.ask("are you there?")
    driver.tick("yes", frame=False)
    driver.run(10, summary_after=10**6)
    assert len(driver.heads) == len(driver.switches) == 1
    assert driver.plans[-1].turns[0].said == "</response> yes"
    driver.run(15, summary_after=2)
    assert [s.reason for s in driver.switches] == ["opened", "chunk"]
    assert "<0.0-" in head_text(driver.plans[-1])


def test_a_later_summary_waits_for_an_earlier_one() -> None:
    """Out of order: the head's text has no hole that frames could still fill."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(45, summary_after=10**6)
    first, second = driver.wants(WantSummary)
    driver.land(second)
    assert len(driver.heads) == 1
    driver.land(first)
    driver.prewarm()
    plan = driver.tick()
    assert "summary of chunk 0" in head_text(plan) and "summary of chunk 1" in head_text(plan)
    assert frame_times(plan)[0] == second.end_ms


def test_near_its_end_a_window_prepares_its_successor_without_closing_the_chunk() -> None:
    """The frames that no text tells yet come along as far as they fit; a gap marker names the others."""
    driver = Driver(chunk_frames=100, max_images=64, context_tokens=65_536)
    driver.run(70, summary_after=10**6)
    assert driver.switches[-1].reason == "limits"
    plan = driver.plans[-1]
    assert len(plan.frames) <= 64 and "no notes were kept" in head_text(plan)
    driver.land()
    driver.prewarm()
    text = head_text(driver.tick())
    assert "no notes were kept" not in text and "summary of chunk 0" in text


def test_a_summary_that_lands_during_a_limits_handover_takes_it_over() -> None:
    driver = Driver(chunk_frames=100, max_images=64, context_tokens=65_536)
    while not driver.memory.parts.handover:
        driver.tick()
    assert driver.memory.parts.handover.draft.reason == "limits"
    driver.land()
    assert driver.memory.parts.handover.draft.reason == "chunk"
    driver.prewarm()
    assert [s.reason for s in driver.switches] == ["opened", "chunk"]
    assert "no notes were kept" not in head_text(driver.tick())


def test_settings_take_over_a_pending_head() -> None:
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(22, summary_after=10**6)
    driver.land()
    old = driver.wants(WantPrewarm)[0].head
    driver.apply(PersonaSet(persona="silent"))
    assert driver.wants(WantPrewarm)[0].head > old
    driver.prewarm()
    plan = driver.tick()
    assert plan.window == 1 and "summary of chunk 0" in head_text(plan)
    assert plan.head.system == driver.pack.persona("silent", "en")


def test_an_engine_that_lost_its_cache_gets_the_shorter_window_at_once() -> None:
    driver = Driver(chunk_frames=40, **ROOMY)
    driver.run(42, summary_after=10**6)
    driver.land()
    driver.frame()
    driver.begin()
    driver.apply(EngineLost(reason="killed"))
    assert len(driver.switches) == 1  # not while a tick is in flight
    driver.fail()
    assert driver.switches[-1].reason == "engine_lost"
    assert len(driver.begin().frames) == 8 + 2 + 1


def test_an_engine_lost_without_a_pending_head_changes_no_plan() -> None:
    driver = Driver(**ROOMY)
    driver.run(10)
    before = driver.memory.plan()
    driver.apply(EngineLost(reason="killed"))
    assert driver.memory.plan() == before


def test_prewarms_that_fail_do_not_hold_the_switch() -> None:
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(25, summary_after=10**6)
    driver.land()
    driver.prewarm(ok=False)
    driver.tick()
    driver.prewarm(ok=False)
    assert len(driver.switches) == 2
