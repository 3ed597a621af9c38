from __future__ import annotations

from orchestrator.backends.replay.suspects import Suspects

A, B, C = ("a", "ua"), ("b", "ub"), ("c", "uc")


def test_a_frame_is_quarantined_only_at_its_second_death_alone() -> None:
    suspects = Suspects()
    assert suspects.died([A], stopped_by_us=False) is None
    assert suspects.riders(["a", "b"]) == ("a",)
    assert suspects.died([A], stopped_by_us=False) == "a"
    assert suspects.is_quarantined("ua")
    assert suspects.riders(["b"]) == ("b",)


def test_suspects_ride_one_at_a_time_and_are_cleared_by_an_answer() -> None:
    suspects = Suspects()
    suspects.died([A, B], stopped_by_us=False)
    assert suspects.riders(["a", "b", "c"]) == ("a",)
    suspects.answered(["a"])
    assert suspects.riders(["b", "c"]) == ("b",)
    assert suspects.died([B], stopped_by_us=False) == "b"
    assert suspects.riders(["c"]) == ("c",)


def test_a_death_in_company_quarantines_nobody() -> None:
    suspects = Suspects()
    suspects.died([A, B], stopped_by_us=False)
    assert suspects.died([A, B], stopped_by_us=False) is None


def test_frames_before_a_suspect_ride_without_it() -> None:
    suspects = Suspects()
    suspects.died([B], stopped_by_us=False)
    assert suspects.riders(["a", "b", "c"]) == ("a",)


def test_our_own_stop_never_counts() -> None:
    suspects = Suspects()
    assert suspects.died([A], stopped_by_us=True) is None
    assert suspects.riders(["a", "b"]) == ("a", "b")


def test_suspicion_and_quarantine_end_with_the_window() -> None:
    suspects = Suspects()
    suspects.died([A], stopped_by_us=False)
    suspects.died([A], stopped_by_us=False)
    suspects.died([C], stopped_by_us=False)
    suspects.window_over()
    assert not suspects.is_quarantined("ua")
    assert suspects.riders(["c", "b"]) == ("c", "b")
