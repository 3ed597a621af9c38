import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals import stats


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_percentile_agrees_with_numpy(values, share):
    assert stats.percentile(values, share) == pytest.approx(np.percentile(values, share * 100), abs=1e-3)


def test_percentile_of_nothing_and_of_nonsense():
    assert stats.percentile([], 0.5) is None
    with pytest.raises(ValueError):
        stats.percentile([1.0], 1.5)


def test_spread_leaves_unknown_values_out():
    got = stats.spread([None, 1.0, 3.0, None])
    assert (got.count, got.p50, got.max, got.mean) == (2, 2.0, 3.0, 2.0)
    assert stats.spread([None]).p95 is None


def row(tick, window=0, prompt=1000, cached=900, promised=900, **more):
    return {
        "tick": tick,
        "window": window,
        "media_time_s": float(tick),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "expected_cached_tokens": promised,
        **more,
    }


def test_reuse_ignores_ticks_without_a_count():
    rows = [row(0, prompt=100, cached=50), row(1, prompt=None, cached=None), row(2, prompt=100, cached=None)]
    assert stats.reuse_ratio(rows) == 0.5
    assert stats.reuse_ratio([]) is None


def test_boundary_ticks_and_gated_ticks_are_not_within_a_window():
    rows = [row(0), row(1), row(2, prompt=0), row(3), row(4, window=1), row(5, window=1)]
    assert [r["tick"] for r in stats.within_windows(rows)] == [1, 3, 5]


def test_audit_counts_promises_kept_broken_and_surpassed():
    rows = [row(0, cached=0, promised=0), *(row(t) for t in range(1, 9))]
    rows += [row(9, cached=100, promised=900, shortfall="evicted"), row(10, cached=950)]
    audit = stats.audit_figures(rows)
    assert (audit.ticks, audit.equal, audit.more, audit.less) == (10, 8, 1, 1)
    assert audit.kept_percent == 90.0
    assert audit.shortfalls == {"evicted": 1}
    assert audit.reprefills == 1


def test_audit_of_an_engine_that_tells_nothing():
    audit = stats.audit_figures([row(t, cached=None) for t in range(3)])
    assert (audit.ticks, audit.kept_percent, audit.reprefills) == (0, None, 0)


def test_window_figures():
    rows = [row(0, cached=0), row(1), row(2, window=1, cached=400), row(3, window=1)]
    first, second = stats.window_figures(rows)
    assert (first.ticks, first.first_uncached, first.start_s, first.end_s) == (2, 1000, 0.0, 1.0)
    assert (second.window, second.first_uncached, second.reuse) == (1, 600, 0.65)


def test_growth_and_counts():
    assert stats.growth([1.0] * 10 + [2.0] * 10) == 2.0
    assert stats.growth([1.0] * 19) is None
    assert stats.count([{"a": "x"}, {"a": "y"}, {"a": "x"}, {"a": None}], "a") == {"x": 2, "y": 1}
