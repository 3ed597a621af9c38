"""A session that is told less of its past than it could be: what measuring memory needs."""

from __future__ import annotations

from memory.plan import WantSummary
from tests.memory.driver import Driver, frame_times, head_text

ROOMY = {"chunk_frames": 20, "context_tokens": 131_072, "max_images": 256}


def watched(**limits) -> Driver:
    driver = Driver(**ROOMY, **limits)
    driver.ask("what comes?")
    for tick in range(70):
        driver.tick("a heron" if tick == 3 else "")
        driver.prewarm()
    return driver


def test_without_summaries_nothing_waits_for_one_and_answers_are_still_told() -> None:
    driver = watched(keep="answers")
    assert [s.reason for s in driver.switches] == ["opened", "chunk", "chunk", "chunk"]
    assert not driver.memory.wants() or not any(isinstance(w, WantSummary) for w in driver.memory.wants())
    text = head_text(driver.plans[-1])
    assert "a heron" in text and "what comes?" in text and "no notes were kept" not in text


def test_without_memory_a_window_knows_its_query_and_its_carried_frames_alone() -> None:
    driver = watched(keep="nothing")
    text = head_text(driver.plans[-1])
    assert "what comes?" in text and "a heron" not in text
    sizes = [len(plan.frames) for plan in driver.plans]
    assert max(sizes) <= 29 and min(sizes[25:]) == 9  # eight frames are carried
    assert len([s for s in driver.switches if s.reason == "chunk"]) == 3


def test_no_overlap_is_a_hard_cut() -> None:
    driver = watched(keep="nothing", overlap_frames=0)
    sizes = [len(plan.frames) for plan in driver.plans]
    assert max(sizes) <= 21
    cut = next(i for i in range(1, len(sizes)) if sizes[i] < sizes[i - 1])
    assert frame_times(driver.plans[cut])[0] > frame_times(driver.plans[cut - 1])[-1] - 1000


def test_a_log_tells_the_same_again() -> None:
    driver = watched(keep="nothing")
    assert driver.rebuilt().fingerprint() == driver.memory.fingerprint()
