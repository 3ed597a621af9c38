"""What a run cost: tokens, engine time, bytes. Pure.

Of decisions, from their rows; and of all requests by what they were for (decisions, summaries, warming a new
window ...), where the run kept a tape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evals.runs.tape_reader import Moment
from evals.stats import Row, asked_engine, column, reuse_ratio

Sums = dict[str, float]
_SPENT = (
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "prefilled_tokens",
    "completion_tokens",
    "engine_s",
    "body_bytes",
)


def cost_of(rows: Sequence[Row], watched_s: float) -> Sums:
    """Sums of one clip. ``engine_s`` is the time that requests took, waiting included; failed ones too.

    A full-duplex engine tells nothing of what it computes: of its clips there are only units and the bytes of
    the sound and the pictures that went to it.
    """
    asked = [row for row in rows if asked_engine(row)]
    counted = [row for row in asked if row.get("cached_tokens") is not None]
    return {
        "watched_s": watched_s,
        "ticks": sum(row.get("kind") in (None, "unit") for row in rows),
        "requests": len(asked),
        "failed": sum(row.get("status") == "failed" for row in rows),
        "prompt_tokens": sum(column(asked, "prompt_tokens")),
        "cached_tokens": sum(column(counted, "cached_tokens")),
        # Where the engine tells no cached tokens, all of them count as prefilled.
        "prefilled_tokens": sum(column(asked, "prompt_tokens")) - sum(column(counted, "cached_tokens")),
        "completion_tokens": sum(column(asked, "completion_tokens")),
        "engine_s": sum(column(asked, "latency_ms")) / 1000,
        "body_bytes": sum(column(asked, "body_bytes")) + sum(column(rows, "sent_bytes")),
        "retries": sum(column(rows, "retries")),
    }


def spent(moments: Iterable[Moment]) -> dict[str, Sums]:
    """Sums of all requests of a tape, by the first word of their purpose. What was given up or failed counts
    as a request and no more: nobody told what it took."""
    purposes: dict[int, str] = {}
    found: dict[str, Sums] = {}
    for moment in moments:
        if moment.what == "ask":
            purpose = str(moment.data["purpose"]).partition(" ")[0] or "unnamed"
            purposes[moment.data["id"]] = purpose
            sums = found.setdefault(purpose, dict.fromkeys(_SPENT, 0.0))
            sums["requests"] += 1
        elif moment.what == "end" and (told := moment.data.get("finished")) is not None:
            sums = found[purposes[moment.data["id"]]]
            cached = told.get("cached_tokens") or 0
            sums["prompt_tokens"] += told["prompt_tokens"]
            sums["cached_tokens"] += cached
            sums["prefilled_tokens"] += told["prompt_tokens"] - cached
            sums["completion_tokens"] += told["completion_tokens"]
            sums["engine_s"] += told["total_ms"] / 1000
            sums["body_bytes"] += told["body_bytes"]
    return found


def total_spent(clips: Iterable[Mapping[str, Sums]]) -> dict[str, Sums]:
    """The sums of many tapes."""
    found: dict[str, Sums] = {}
    for clip in clips:
        for purpose, sums in clip.items():
            whole = found.setdefault(purpose, dict.fromkeys(_SPENT, 0.0))
            for name, value in sums.items():
                whole[name] += value
    return dict(sorted(found.items()))


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
