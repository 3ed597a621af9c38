"""``summary.json``: what a run came to, from its rows and the facts about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from evals import stats
from evals.stats import Row

SUMMARY_FORMAT = 1
"""Version of the layout of ``summary.json``; grows when a key changes its meaning or goes."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run apart from its ticks. Plain values, JSON-ready.

    :param outcome: ``complete``, ``interrupted`` or ``failed``
    :param error: ``{"code", "message"}`` of what ended a failed run
    :param transport: ``in_process`` or ``http``
    :param started_at: ISO 8601 with zone; ``wall_s``: seconds it took
    :param options: what was asked for (queries, pace, persona ...)
    :param source: where the frames came from
    :param engine: what is known of the engine
    :param frames: counters of frames: ``sent``, ``dropped`` (live sources only)
    :param warnings: what the decoder and the engine check complained about
    """

    outcome: str
    transport: str
    started_at: str
    wall_s: float
    options: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    frames: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    error: Mapping[str, str] | None = None


def summarise(rows: Sequence[Row], run: RunFacts) -> dict[str, Any]:
    """The content of ``summary.json``. Figures that nothing was known for are ``null``."""
    answered = [row for row in rows if stats.asked_engine(row)]
    bodies = stats.column(answered, "body_bytes")
    return {
        "format": SUMMARY_FORMAT,
        **asdict(run),
        "ticks": len(rows),
        "actions": stats.count(rows, "action"),
        "reasons": stats.count((r for r in rows if r.get("action") == "silence"), "reason"),
        "statuses": stats.count(rows, "status"),
        "media_s": float(rows[-1].get("media_time_s") or 0.0) if rows else 0.0,
        "latency_ms": asdict(stats.spread(r.get("latency_ms") for r in answered)),
        "ttft_ms": asdict(stats.spread(r.get("ttft_ms") for r in answered)),
        "prompt_tokens": asdict(stats.spread(r.get("prompt_tokens") for r in answered)),
        "reuse_ratio": stats.reuse_ratio(rows),
        "body_bytes": {**asdict(stats.spread(bodies)), "growth": stats.growth(bodies)},
        "retries": int(sum(stats.column(rows, "retries"))),
        "audit": asdict(stats.audit_figures(rows)),
        "windows": [asdict(w) for w in stats.window_figures(rows)],
    }
