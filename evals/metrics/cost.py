"""What a run cost: tokens, engine time, bytes. Pure.

Of decisions alone: what summaries took is the engine's own metrics' matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evals.stats import Row, asked_engine, column, reuse_ratio

Sums = dict[str, float]


def cost_of(rows: Sequence[Row], watched_s: float) -> Sums:
    """Sums of one clip. ``engine_s`` is the time that requests took, waiting included; failed ones too."""
    asked = [row for row in rows if asked_engine(row)]
    counted = [row for row in asked if row.get("cached_tokens") is not None]
    return {
        "watched_s": watched_s,
        "ticks": len(rows),
        "requests": len(asked),
        "failed": sum(row.get("status") == "failed" for row in rows),
        "prompt_tokens": sum(column(asked, "prompt_tokens")),
        "cached_tokens": sum(column(counted, "cached_tokens")),
        # Where the engine tells no cached tokens, all of them count as prefilled.
        "prefilled_tokens": sum(column(asked, "prompt_tokens")) - sum(column(counted, "cached_tokens")),
        "completion_tokens": sum(column(asked, "completion_tokens")),
        "engine_s": sum(column(asked, "latency_ms")) / 1000,
        "body_bytes": sum(column(asked, "body_bytes")),
        "retries": sum(column(rows, "retries")),
    }


def total_cost(sums: Iterable[Sums], rows: Iterable[Row]) -> dict[str, Any]:
    """Sums of all clips, and what a request and an hour of media took."""
    whole: Sums = {}
    for one in sums:
        for name, value in one.items():
            whole[name] = whole.get(name, 0.0) + value
    requests, hours = whole.get("requests", 0.0), whole.get("watched_s", 0.0) / 3600
    per = ("prefilled_tokens", "completion_tokens", "engine_s", "body_bytes")
    return {
        "sums": whole,
        "reuse_ratio": reuse_ratio(rows),
        "per_request": {name: whole[name] / requests for name in per} if requests else {},
        "per_hour": {name: whole[name] / hours for name in per} if hours else {},
    }
