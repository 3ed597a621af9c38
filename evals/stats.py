"""Figures over the rows of ``decisions.jsonl``: percentiles, reuse, the audit's promise, body sizes.

Pure functions. A row is a mapping with the columns of ``COLUMNS``; a missing column or ``None`` means
"not known" and is left out of a figure, never counted as zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

Row = Mapping[str, Any]

COLUMNS: tuple[str, ...] = (
    "tick",
    "engine",
    "media_time_s",
    "action",
    "reason",
    "text",
    "question",
    "frames",
    "window_frames",
    "chunk",
    "window",
    "prompt_tokens",
    "cached_tokens",
    "expected_cached_tokens",
    "shortfall",
    "completion_tokens",
    "latency_ms",
    "ttft_ms",
    "body_bytes",
    "retries",
    "path",
    "path_fallback",
    "score",
    "status",
    "response_id",
    "operations",
)
"""Columns of ``decisions.jsonl``, in order."""

REPREFILL_FACTOR = 2.0
"""A tick within a window whose uncached tokens exceed this many medians has re-prefilled."""


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` (0 to 1) of ``values`` lie, linear between ranks; ``None`` if empty."""
    if not values:
        return None
    if not 0.0 <= share <= 1.0:
        raise ValueError("share must lie between 0 and 1")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = floor(place), ceil(place)
    # Written so that equal neighbours give exactly their value, with no rounding of its own.
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Spread:
    """Count, p50, p95, largest and mean of one column; the figures are ``None`` when nothing was counted."""

    count: int
    p50: float | None
    p95: float | None
    max: float | None
    mean: float | None


def spread(values: Iterable[float | None]) -> Spread:
    known = [float(v) for v in values if v is not None]
    if not known:
        return Spread(0, None, None, None, None)
    return Spread(
        count=len(known),
        p50=percentile(known, 0.5),
        p95=percentile(known, 0.95),
        max=max(known),
        mean=sum(known) / len(known),
    )


def column(rows: Iterable[Row], name: str) -> list[float]:
    """The known values of one numeric column, in row order."""
    return [float(row[name]) for row in rows if row.get(name) is not None]


def asked_engine(row: Row) -> bool:
    """True when the engine answered this tick: a gated or failed tick has no prompt tokens."""
    return bool(row.get("prompt_tokens"))


def reuse_ratio(rows: Iterable[Row]) -> float | None:
    """Cached share of all prompt tokens (0 to 1) where both are known; ``None`` if nowhere."""
    prompt = cached = 0
    for row in rows:
        if asked_engine(row) and row.get("cached_tokens") is not None:
            prompt += int(row["prompt_tokens"])
            cached += int(row["cached_tokens"])
    return cached / prompt if prompt else None


def within_windows(rows: Iterable[Row]) -> list[Row]:
    """Ticks that the engine answered, without the first of each window: those start from a new head."""
    kept: list[Row] = []
    window: object = _NONE
    for row in rows:
        if not asked_engine(row):
            continue
        if row.get("window") == window:
            kept.append(row)
        window = row.get("window")
    return kept


_NONE = object()


@dataclass(frozen=True, slots=True)
class AuditFigures:
    """The prefix audit over ticks within windows.

    :param ticks: ticks with both a promise and a count from the engine
    :param equal: cached tokens exactly as promised
    :param more: the engine reused more than promised (another session had the same prefix)
    :param less: shortfalls
    :param kept_percent: share of ``ticks`` with nothing short, in percent; ``None`` if there were none
    :param shortfalls: reason of each shortfall -> how often (boundary ticks included)
    :param reprefills: ticks within a window whose uncached tokens exceed twice the median
    """

    ticks: int
    equal: int
    more: int
    less: int
    kept_percent: float | None
    shortfalls: dict[str, int]
    reprefills: int


def audit_figures(rows: Sequence[Row]) -> AuditFigures:
    inside = within_windows(rows)
    judged = [
        (int(r["cached_tokens"]), int(r["expected_cached_tokens"]))
        for r in inside
        if r.get("cached_tokens") is not None and r.get("expected_cached_tokens") is not None
    ]
    equal = sum(cached == promised for cached, promised in judged)
    more = sum(cached > promised for cached, promised in judged)
    uncached = [
        int(r["prompt_tokens"]) - int(r["cached_tokens"])
        for r in inside
        if r.get("cached_tokens") is not None
    ]
    median = percentile(uncached, 0.5) or 0.0
    return AuditFigures(
        ticks=len(judged),
        equal=equal,
        more=more,
        less=len(judged) - equal - more,
        kept_percent=100.0 * (equal + more) / len(judged) if judged else None,
        shortfalls=dict(Counter(str(r["shortfall"]) for r in rows if r.get("shortfall"))),
        reprefills=sum(tokens > REPREFILL_FACTOR * median for tokens in uncached) if median else 0,
    )


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """One window: its ticks, its media time in seconds, its reuse, and what its first tick cost."""

    window: int
    ticks: int
    start_s: float
    end_s: float
    reuse: float | None
    first_uncached: int | None


def window_figures(rows: Sequence[Row]) -> list[WindowFigures]:
    """One entry per window, in the order in which they were first seen."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        if row.get("window") is not None:
            groups.setdefault(int(row["window"]), []).append(row)
    figures = []
    for window, members in groups.items():
        first = next((r for r in members if asked_engine(r) and r.get("cached_tokens") is not None), None)
        figures.append(
            WindowFigures(
                window=window,
                ticks=len(members),
                start_s=float(members[0].get("media_time_s") or 0.0),
                end_s=float(members[-1].get("media_time_s") or 0.0),
                reuse=reuse_ratio(members),
                first_uncached=int(first["prompt_tokens"]) - int(first["cached_tokens"]) if first else None,
            )
        )
    return figures


def growth(values: Sequence[float], span: int = 10) -> float | None:
    """Median of the last ``span`` values over that of the first; 1.0 is flat, ``None`` if too few to say."""
    if len(values) < 2 * span:
        return None
    first, last = percentile(values[:span], 0.5), percentile(values[-span:], 0.5)
    return last / first if first and last is not None else None


def count(rows: Iterable[Row], name: str) -> dict[str, int]:
    """How often each value of a column occurs, most frequent first; unknown values are left out."""
    return dict(Counter(str(row[name]) for row in rows if row.get(name) is not None).most_common())
