"""Our replay against full resend and against no prefix cache: one run, one engine, the same frames.

``make bench-replay``, or ``python -m evals.bench.replay_bench --engine URL|PROFILE --out FILE``

A session is watched from its first frame to its hundredth. At every tick the session core decides first; the
rivals then ask for the same decision from the same prompt (``evals.bench.arms``). Measured are the ten ticks
up to each point of 10, 50 and 100 frames in the window; three sessions give 30 ticks a point and arm, taken
in turns. The resending rival asks at every tick, as it would, so that its cache is warm. Ours is charged for
everything between the frame at hand and the decision complete; the rivals for building and sending the
request and reading its answer, but not for checking or keeping frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from evals.bench.arms import ARMS, Sample
from evals.bench.machine import machine
from evals.stats import percentile

POINTS = (10, 50, 100)
"""Frames in the window at which the arms are compared."""
SPAN = 10
"""Ticks up to each point that are measured, in every session."""
SESSIONS = 3
WARM_TICKS = 12
SIDE = 448
GOAL_BEST, GOAL_NO_CACHE = 1.05, 8.0
"""Ours is at most this many times the best rival, and at 100 frames this many times as fast as no cache."""

Samples = dict[int, dict[str, list[Sample]]]


def point_of(frames: int) -> int | None:
    """The point whose span holds a window of so many frames."""
    return next((point for point in POINTS if point - SPAN < frames <= point), None)


def result_of(samples: Samples, facts: dict[str, Any]) -> dict[str, Any]:
    """The bench's JSON: per point and arm p50 and p95 in ms and median counts; ratios; goals met."""
    points = []
    for point, arms in samples.items():
        figures = {arm: _figures(arms[arm]) for arm in ARMS}
        ours, resend, no_cache = (figures[arm]["p50_ms"] for arm in ARMS)
        points.append(
            {
                "frames": point,
                "arms": figures,
                "ours_to_best_other": round(ours / min(resend, no_cache), 3),
                "no_cache_to_ours": round(no_cache / ours, 2),
            }
        )
    goals = {
        f"ours at most {GOAL_BEST}x the best other at every point": all(
            p["ours_to_best_other"] <= GOAL_BEST for p in points
        ),
        f"ours at least {GOAL_NO_CACHE:g}x as fast as no cache at {POINTS[-1]} frames": (
            points[-1]["no_cache_to_ours"] >= GOAL_NO_CACHE
        ),
    }
    return {"bench": "replay", "machine": machine(), "engine": facts, "points": points, "goals": goals}


def _figures(samples: Sequence[Sample]) -> dict[str, Any]:
    def median(name: str) -> int:
        return round(percentile([getattr(s, name) for s in samples], 0.5) or 0)

    times = [s.ms for s in samples]
    return {
        "ticks": len(samples),
        "p50_ms": round(percentile(times, 0.5) or 0.0, 1),
        "p95_ms": round(percentile(times, 0.95) or 0.0, 1),
        "prompt_tokens": median("prompt_tokens"),
        "cached_tokens": median("cached_tokens"),
        "completion_tokens": median("completion_tokens"),
        "body_bytes": median("body_bytes"),
    }


def show(result: dict[str, Any], console: Console) -> None:
    where = result["machine"]
    console.print(
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gb']} GB, Python {where['python']}, "
        f"vigil {where['vigil']}; engine {result['engine'].get('version') or '-'} with "
        f"{result['engine'].get('model') or '-'}; frames {SIDE}x{SIDE}",
        soft_wrap=True,
        highlight=False,
    )
    table = Table(
        "frames", "arm", "ticks", "p50 ms", "p95 ms", "prompt", "cached", "reply", "body kB", "to ours"
    )
    for point in result["points"]:
        ours = point["arms"]["ours"]["p50_ms"]
        for arm, f in point["arms"].items():
            cells = (point["frames"], arm, f["ticks"], f["p50_ms"], f["p95_ms"], f["prompt_tokens"])
            rest = (f["cached_tokens"], f["completion_tokens"], round(f["body_bytes"] / 1000))
            table.add_row(
                *map(str, (*cells, *rest)), f"{f['p50_ms'] / ours:.2f}x", end_section=arm == ARMS[-1]
            )
    console.print(table)
    for goal, met in result["goals"].items():
        console.print(f"{'met' if met else 'MISSED'}: {goal}", highlight=False)
