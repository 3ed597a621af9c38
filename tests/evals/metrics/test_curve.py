"""Misses against false alerts from the scores of one run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.metrics.curve import Scored, best_of, operating_curve
from evals.readers.clip import Clip, Kind, Query
from tests.evals.metrics.made import acts, clip_of, slot


def scored(clip: Clip, scores: dict[int, float], seconds: int = 60) -> Scored:
    made = [replace(act, score=scores.get(act.tick, 0.0)) for act in acts(clip, {}, seconds)]
    return Scored(clip, made, float(seconds))


def test_each_threshold_has_its_misses_and_false_alerts() -> None:
    clip = clip_of(slot(10, 15), slot(30, 35, "s2"))
    curve = operating_curve([scored(clip, {10: 0.9, 11: 0.9, 31: 0.4, 50: 0.6})])
    assert [(p.threshold, p.misses, p.false_alerts_per_h) for p in curve] == [
        # Everything reaches zero: one onset, at the very first tick.
        (0.0, 1.0, pytest.approx(60)),
        (0.4, 0.0, pytest.approx(60)),
        (0.6, 0.5, pytest.approx(60)),
        (0.9, 0.5, 0.0),
    ]
    assert curve[1].f1 == pytest.approx(2 * 2 / 5)
    best = best_of(curve)
    assert best is not None and best.threshold == 0.4


def test_ticks_in_a_row_are_one_onset() -> None:
    clip = clip_of(slot(10, 12))
    (_, point) = operating_curve([scored(clip, dict.fromkeys(range(10, 30), 0.8))])
    assert (point.misses, point.false_alerts_per_h) == (0, 0)


def test_queries_of_other_kinds_stay_out_and_events_that_never_come_count() -> None:
    queries = (
        Query(id="q1", text="a", skill="alert"),
        Query(id="q2", at_s=20, text="b", skill="alert"),
        Query(id="q3", at_s=40, text="c", skill="read"),
    )
    other = slot(45, 50, "s3", query="q3", kind=Kind.ANSWER)
    curve = operating_curve([scored(clip_of(slot(5, 9), other, queries=queries), {5: 0.9, 25: 0.9, 46: 0.9})])
    top = curve[-1]
    assert (top.misses, top.false_alerts_per_h) == (0, pytest.approx(3600 / 40))


def test_without_scores_or_slots_there_is_no_curve() -> None:
    clip = clip_of(slot(5, 9))
    assert operating_curve([Scored(clip, acts(clip, {}), 60.0)]) == []
    assert operating_curve([scored(clip_of(), {5: 0.9})]) == []
    assert best_of([]) is None


@given(st.dictionaries(st.integers(0, 59), st.floats(0.01, 1), max_size=30))
def test_there_are_at_most_so_many_points_in_order(scores: dict[int, float]) -> None:
    curve = operating_curve([scored(clip_of(slot(5, 9)), scores)], points=7)
    assert 1 <= len(curve) <= 7
    assert [p.threshold for p in curve] == sorted({p.threshold for p in curve})
    assert all(0 <= p.misses <= 1 and 0 <= p.f1 <= 1 for p in curve)
