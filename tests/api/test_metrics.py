"""Figures of the prefix audit, of background texts and of deliveries."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.api.metrics import CODES, TENANTS, Metrics
from orchestrator.api.readings import Reading, Readings
from orchestrator.api.shown import OTHERS
from orchestrator.runtime.vocabulary import Failed, Fence, Notice, TickDone


def value(metrics: Metrics, sample: str) -> float:
    found = re.search(rf"^vigil_{re.escape(sample)} (\S+)$", metrics.render().decode(), re.M)
    return float(found[1]) if found else 0.0


def tick(metrics: Metrics, **record: Any) -> None:
    known = {"action": "silence", "reason": "model", "prompt_tokens": 100}
    metrics.observe(TickDone(Fence(), 1, (), known | record), "ann")


def test_promises_and_what_became_of_them() -> None:
    metrics = Metrics()
    tick(metrics, cached_tokens=96, expected_cached_tokens=64)
    tick(metrics, cached_tokens=32, expected_cached_tokens=96, shortfall="evicted")
    tick(metrics, cached_tokens=16, expected_cached_tokens=96, shortfall="said/4/1022")
    tick(metrics, cached_tokens=None, expected_cached_tokens=96)
    assert value(metrics, "expected_cached_tokens_total") == 64 + 3 * 96
    assert value(metrics, "prefix_kept_tokens_total") == 64 + 32 + 16
    assert value(metrics, 'prefix_shortfalls_total{kind="evicted"}') == 1
    assert value(metrics, 'prefix_shortfalls_total{kind="said"}') == 1


def test_what_is_odd_and_what_is_not_shown() -> None:
    metrics = Metrics()
    metrics.fact("frame_dropped", {"frame_id": "f", "media_time_ms": 0, "reason": "thinned"})
    metrics.fact("prewarmed", {"head": 1, "turns": 2, "ok": True})
    metrics.fact("prewarmed", {"head": 1, "turns": 2, "ok": False})
    metrics.fact("tick_answered", {"metrics": {"oddities": {"no_tag": 1, "tag_spelling": 2}}})
    metrics.fact("tick_answered", {})
    assert value(metrics, 'frames_not_shown_total{reason="thinned"}') == 1
    assert value(metrics, 'prewarms_total{outcome="done"}') == 1
    assert value(metrics, 'prewarms_total{outcome="failed"}') == 1
    assert value(metrics, 'answer_oddities_total{kind="no_tag"}') == 1
    assert value(metrics, 'answer_oddities_total{kind="tag_spelling"}') == 2


def test_decisions_by_outcome() -> None:
    """Why a session is silent is one figure: gated, the model, a repeat, unhealthy, a late engine."""
    metrics = Metrics()
    for reason in ("gated", "model", "deduplicated", "unhealthy", "not_asked"):
        tick(metrics, reason=reason)
    tick(metrics, action="response", reason=None)
    metrics.observe(
        TickDone(Fence(), 1, (), {"action": "silence", "reason": "engine_late"}, "engine_timeout"), "ann"
    )
    for reason in ("gated", "model", "deduplicated", "unhealthy", "not_asked"):
        assert value(metrics, f'ticks_total{{action="silence",reason="{reason}"}}') == 1
    assert value(metrics, 'ticks_total{action="response",reason=""}') == 1
    assert value(metrics, 'tick_failures_total{code="engine_timeout",engine=""}') == 1


def test_summaries_handovers_and_events() -> None:
    metrics = Metrics()
    for kind in ("summary_landed", "summary_failed", "summary_failed", "rollup_landed", "frame_seen"):
        metrics.fact(kind, {})
    metrics.fact("window_switched", {"window": 0, "reason": "opened"})
    metrics.fact("window_switched", {"window": 1, "reason": "chunk"})
    metrics.delivery("delivered")
    assert value(metrics, 'summaries_total{kind="summary",outcome="landed"}') == 1
    assert value(metrics, 'summaries_total{kind="summary",outcome="failed"}') == 2
    assert value(metrics, 'summaries_total{kind="long_term_block",outcome="landed"}') == 1
    assert value(metrics, 'window_handovers_total{reason="chunk"}') == 1
    assert value(metrics, 'window_handovers_total{reason="opened"}') == 0
    assert value(metrics, 'webhook_events_total{outcome="delivered"}') == 1


def test_tenants_have_their_own_figures_and_are_no_more_than_so_many() -> None:
    metrics = Metrics()
    done = {
        "action": "silence",
        "reason": "model",
        "latency_ms": 250.0,
        "prompt_tokens": 100,
        "cached_tokens": 90,
    }
    for number in range(TENANTS + 10):
        metrics.observe(TickDone(Fence(), 1, (), done), f"tenant-{number}")
    metrics.observe(TickDone(Fence(), 2, (), {}, "engine_timeout"), "tenant-0")
    told = metrics.render(tenants=True).decode()
    assert 'vigil_tenant_ticks_total{tenant="tenant-0"} 1.0' in told
    assert 'vigil_tenant_tick_failures_total{tenant="tenant-0"} 1.0' in told
    assert 'vigil_tenant_cached_tokens_total{tenant="tenant-0"} 90.0' in told
    assert 'vigil_tenant_tick_latency_seconds_sum{tenant="tenant-0"} 0.25' in told
    assert f'vigil_tenant_ticks_total{{tenant="{OTHERS}"}} 10.0' in told
    assert len(re.findall(r"^vigil_tenant_ticks_total", told, re.M)) == TENANTS + 1
    assert "vigil_tenant" not in metrics.render().decode(), "names of tenants are not for everyone"


@pytest.mark.parametrize("code", ["x" * 10_000, "two\nlines", "\ud800", 'a"b', "見張り"])
def test_what_is_no_code_is_no_label(code: str) -> None:
    """Engines are others' programs: what they call a reason may be anything."""
    metrics = Metrics()
    metrics.observe(Failed(Fence(), code, ""), "ann")
    metrics.observe(Notice(code, ""), "ann")
    metrics.fact("engine_session_ended", {"reason": code})
    metrics.fact("media_gap", {"reason": code, "units": [1]})
    tick(metrics, reason=code, path_fallback=code)
    metrics.observe(TickDone(Fence(), 1, (), {}, code), "ann")
    told = metrics.render(tenants=True).decode()
    assert told.count(f'"{OTHERS}"') == 7
    assert code not in told


def test_however_many_codes_an_engine_has_there_are_no_more_series_than_so_many() -> None:
    metrics = Metrics()
    for number in range(10 * CODES):
        code = f"code_{number}"
        for kind in ("engine_session_ended", "engine_session_opened", "frame_dropped", "media_gap"):
            metrics.fact(kind, {"reason": code, "units": [1]})
        metrics.fact("window_switched", {"reason": code, "window": 1})
        tick(metrics, status="dropped", reason=code, operations=[1])
        tick(metrics, reason=code, path_fallback=code)
        metrics.observe(TickDone(Fence(), 1, (), {}, code), "ann")
        metrics.observe(Failed(Fence(), code, ""), "ann")
        metrics.observe(Notice(code, ""), "ann")
    families = text_string_to_metric_families(metrics.render(tenants=True).decode())
    assert max(len(family.samples) for family in families) == CODES + 1


async def test_scrapes_at_one_time_are_one_look() -> None:
    metrics, looks, go = Metrics(), 0, asyncio.Event()

    async def look() -> None:
        nonlocal looks
        looks += 1
        await go.wait()

    def read() -> Readings:
        return {"looks": Reading("looks so far", float(looks))}

    metrics.add(read, look)
    asked = [asyncio.create_task(metrics.scraped()) for _ in range(5)]
    await asyncio.sleep(0)
    asked[0].cancel()  # who asked first goes away; the others are told nevertheless
    await asyncio.sleep(0)
    go.set()
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(told[0], asyncio.CancelledError)
    assert all(isinstance(each, bytes) and b"vigil_looks 1.0" in each for each in told[1:])
    assert b"vigil_looks 2.0" in await metrics.scraped()
