"""Measures of one clip, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.metrics.measures import TOLERANCES_S
from evals.metrics.tally import Tally, onset_span, tallies_of
from evals.readers.clip import Judging, Kind, Query, Silence
from tests.evals.metrics.made import clip_of, judged, slot


def ratio(tally: Tally, name: str) -> float | None:
    if name not in tally.ratios:
        return None
    above, below = tally.ratios[name]
    return above / below


def test_onsets_are_counted_within_each_tolerance_and_never_outside_of_the_span() -> None:
    clip = clip_of(slot(10, 16), slot(30, 31, "s2"), slot(50, 55, "s3"))
    tally = tallies_of(judged(clip, {9.0: "x", 11.0: "x", 32.0: "x", 54.0: "x"}))["all"]
    assert [ratio(tally, f"onset_recall_{w}s") for w in TOLERANCES_S] == [
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        pytest.approx(2 / 3),
    ]
    assert [ratio(tally, f"onset_precision_{w}s") for w in TOLERANCES_S] == [0.25, 0.25, 0.5]
    assert ratio(tally, "onset_f1_1s") == pytest.approx(2 / 7)
    assert tally.values["delay_s"] == [1.0, 4.0]
    assert ratio(tally, "delay_mean") == 2.5


def test_what_is_said_to_a_query_that_is_not_judged_counts_nowhere_and_neither_does_its_time() -> None:
    queries = (
        Query(id="free", text="Describe what you see.", judged=False),
        Query(id="q1", at_s=30, text="Say when it comes.", skill="alert"),
    )
    outcome = judged(clip_of(slot(40, 45), queries=queries), {5.0: "x", 6.0: "x", 41.0: "x", 50.0: "x"})
    tally = tallies_of(outcome)["all"]
    assert tally.ratios["onset_precision_5s"] == (1, 2) and tally.ratios["repeat_rate"][1] == 2
    assert tally.ratios["false_alerts_per_h"] == (1, pytest.approx(30 / 3600))
    with pytest.raises(ValueError, match="not judged"):
        clip_of(slot(1, 2, query="free"), queries=queries)


def test_a_delay_may_be_negative_where_a_reply_may_come_before_it_is_due() -> None:
    clip = clip_of(slot(8, 16, onset_s=10))
    tally = tallies_of(judged(clip, {9.0: "x"}))["all"]
    assert tally.values["delay_s"] == [-1.0]
    assert onset_span(clip.slots[0], 1) == (9, 11, 10)
    assert onset_span(clip.slots[0], 5) == (8, 15, 10)


def test_false_alerts_are_counted_by_the_hour_that_was_watched() -> None:
    outcome = judged(clip_of(slot(10, 15)), {1.0: "x", 11.0: "x", 12.0: "y", 17.0: "z"})
    assert ratio(tallies_of(outcome)["all"], "false_alerts_per_h") == pytest.approx(2 * 60)
    assert ratio(tallies_of(outcome)["all"], "extra_rate") == 0.25


def test_silence_is_judged_before_evidence_and_where_nothing_may_be_said() -> None:
    clip = clip_of(
        slot(10, 15), slot(30, 35, "s2"), slot(50, 55, "s3"), silences=(Silence(start_s=40, end_s=50),)
    )
    tally = tallies_of(judged(clip, {5.0: "x", 11.0: "y", 41.0: "z"}))["all"]
    # Before the three slots lie 0 to 10, 15 to 30 and 35 to 50.
    assert tally.ratios["early_silence"] == (38, 40)
    assert tally.ratios["early_kept"] == (1, 3)
    assert tally.ratios["silence"] == (9, 10)


def test_a_reply_at_the_last_moment_of_a_slot_breaks_no_silence() -> None:
    clip = clip_of(slot(10, 15), slot(30, 35, "s2"), silences=(Silence(start_s=15, end_s=30),))
    tally = tallies_of(judged(clip, {15.0: "there"}))["all"]
    assert tally.ratios["silence"] == (14, 14)
    assert tally.ratios["early_kept"] == (2, 2)


def test_a_question_about_what_was_seen_has_no_time_before_its_evidence() -> None:
    queries = (Query(id="q1", at_s=20, text="What came first?"),)
    clip = clip_of(slot(20, 25, kind=Kind.ANSWER, evidence_s=5), queries=queries)
    assert "early_silence" not in tallies_of(judged(clip, {21.0: "x"}))["all"].ratios


def test_answers_are_counted_of_all_and_of_those_replied_to() -> None:
    slots = [
        slot(n * 10, n * 10 + 5, f"s{n}", kind=Kind.ANSWER, accepted=("red",), judging=Judging.EXACT)
        for n in range(4)
    ]
    unjudged = slot(50, 55, "s5", kind=Kind.ANSWER, accepted=("red",), judging=Judging.JUDGE)
    tally = tallies_of(judged(clip_of(*slots, unjudged), {1.0: "red", 11.0: "blue", 51.0: "red"}))["all"]
    assert tally.ratios["accuracy"] == (1, 4)
    assert tally.ratios["accuracy_answered"] == (1, 2)
    assert tally.ratios["answered"] == (3, 5)


def test_delegations_are_right_where_they_are_wanted_alone() -> None:
    slots = [slot(n * 10, n * 10 + 5, f"s{n}", kind=Kind.DELEGATE) for n in range(3)]
    easy = [slot(n * 10, n * 10 + 5, f"s{n}", kind=Kind.ANSWER) for n in (3, 4, 5)]
    said = {1.0: "?a", 11.0: "b", 31.0: "c", 41.0: "?d"}
    tally = tallies_of(judged(clip_of(*slots, *easy), said))["all"]
    assert tally.ratios["delegation_recall"] == (1, 3)
    assert tally.ratios["delegation_precision"] == (1, 2)
    assert tally.ratios["delegation"] == (2, 5)


def test_groups_hold_their_own_queries_and_the_time_they_were_in_force() -> None:
    queries = (
        Query(id="q1", at_s=0, text="a", skill="alert"),
        Query(id="q2", at_s=20, until_s=50, text="b", skill="never"),
    )
    outcome = judged(clip_of(slot(10, 15), queries=queries), {11.0: "x", 30.0: "y", 55.0: "z"})
    groups = tallies_of(outcome)
    assert sorted(groups) == ["all", "kind:alert", "kind:other", "skill:alert", "skill:never", "skill:other"]
    assert groups["skill:alert"].ratios["false_alerts_per_h"] == (0, 20 / 3600)
    assert groups["skill:never"].ratios["false_alerts_per_h"] == (1, 30 / 3600)
    assert groups["skill:alert"].ratios["onset_precision_1s"] == (1, 1)
    assert groups["all"].ratios["onset_precision_1s"] == (1, 3)


def test_memory_is_told_by_the_boundaries_that_were_really_crossed() -> None:
    queries = (Query(id="q1", text="a"), Query(id="q2", at_s=45, text="b"))
    probe = slot(
        45,
        50,
        "m",
        query="q2",
        kind=Kind.ANSWER,
        evidence_s=5,
        evidence_end_s=8,
        chunks_later=9,
        accepted=("red",),
        judging=Judging.EXACT,
    )
    asked_soon = probe.model_copy(update={"id": "n", "evidence_s": 41.0, "evidence_end_s": 42.0})
    clip = clip_of(probe, asked_soon, queries=queries)
    # Chunks of twenty ticks: evidence in chunk 0 or 2, replies in chunk 2.
    groups = tallies_of(judged(clip, {45.0: "red", 46.0: "blue"}))
    found = {name: groups[name].ratios["memory"] for name in groups if name.startswith("memory:")}
    assert found == {"memory:0": (0, 1), "memory:2": (1, 1), "memory:1+": (1, 1), "memory:2+": (1, 1)}
    assert groups["all"].ratios["memory"] == (1, 2)
    assert sorted(groups["memory:2"].ratios) == ["accuracy", "accuracy_answered", "answered", "memory"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8)), max_size=6),
    st.sets(st.integers(0, 59).map(float), max_size=20),
)
def test_shares_lie_between_nothing_and_all_and_grow_with_the_tolerance(
    spans: list[tuple[int, int]], times: set[float]
) -> None:
    clip = clip_of(*(slot(a, a + b, f"s{n}") for n, (a, b) in enumerate(spans)))
    tally = tallies_of(judged(clip, dict.fromkeys(times, "there")))["all"]
    for name, (above, below) in tally.ratios.items():
        if name not in ("false_alerts_per_h", "delay_mean"):
            assert 0 <= above <= below, name
    for figure in ("onset_recall", "onset_precision", "onset_f1"):
        grown = [ratio(tally, f"{figure}_{w}s") for w in TOLERANCES_S]
        assert grown == sorted(grown, key=lambda value: value or 0)
