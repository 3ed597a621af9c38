"""Inline SVG of a whole run: a clip's truth and decisions over time, measures with their intervals, the
operating curve, how long decisions took. What comes from a model or a user is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from markupsafe import Markup, escape

from evals.report.plots import WIDTH, ceiling

LANE = 26.0
GAP = 6.0
SCORE_LANE = 34.0
NARROWEST = 4.0
"""Width of the narrowest mark, in plot units."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A span of a lane. ``kind``: class of its colour; ``told``: what is told of it; ``height``: 0 to 1."""

    start_s: float
    end_s: float
    kind: str
    told: str
    height: float = 1.0
    tick: int | None = None


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _svg(height: float, body: Sequence[str], label: str, extra: str = "") -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {_n(WIDTH)} {_n(height)}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}"{extra}>' + "".join(body) + "</svg>"
    )


def timeline(
    length_s: float,
    truth: Sequence[Mark],
    decided: Sequence[Mark],
    scores: Sequence[tuple[float, float]],
    switches: Sequence[float],
    label: str,
) -> Markup:
    """Truth above, decisions below, and where there are speak scores, those at the foot."""
    length = max(length_s, 1e-9)
    foot = 2 * LANE + GAP
    height = foot + (GAP + SCORE_LANE if scores else 0)
    body = [_mark(mark, length, 0.0, rise=False) for mark in truth]
    body += [_mark(mark, length, LANE + GAP, rise=True) for mark in decided]
    if scores:
        body.append(_scores(scores, length, foot + GAP))
    for at_s in switches:
        x = _n(WIDTH * at_s / length)
        body.append(f'<line class="boundary" x1="{x}" x2="{x}" y1="0" y2="{_n(height)}"/>')
    return _svg(height, body, label, f' style="height:{round(height * 1.2)}px"')


def _mark(mark: Mark, length: float, top: float, *, rise: bool) -> str:
    x, end = WIDTH * mark.start_s / length, WIDTH * min(mark.end_s, length) / length
    tall = LANE * mark.height
    y = top + LANE - tall if rise else top + (LANE - tall) / 2
    tick = f' data-tick="{mark.tick}"' if mark.tick is not None else ""
    return (
        f'<rect class="m-{mark.kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(NARROWEST, end - x))}" '
        f'height="{_n(tall)}"{tick}><title>{escape(mark.told)}</title></rect>'
    )


def _scores(scores: Sequence[tuple[float, float]], length: float, top: float) -> str:
    points = " ".join(
        f"{_n(WIDTH * at_s / length)},{_n(top + SCORE_LANE * (1 - value))}" for at_s, value in scores
    )
    middle = _n(top + SCORE_LANE / 2)
    return (
        f'<line class="half" x1="0" x2="{_n(WIDTH)}" y1="{middle}" y2="{middle}"/>'
        f'<polyline class="line score" points="{points}"/>'
    )


def whisker(told: Mapping[str, Any], top: float) -> Markup:
    """A measure from 0 to ``top`` with its interval; the value stands beside it as text."""
    value = min(float(told["value"]), top) / top * WIDTH
    body = [f'<rect class="ground" x="0" y="4" width="{_n(WIDTH)}" height="12"/>']
    body.append(f'<rect class="value" x="0" y="4" width="{_n(value)}" height="12"/>')
    if told.get("low") is not None:
        low, high = (min(float(told[end]), top) / top * WIDTH for end in ("low", "high"))
        body.append(f'<line class="whisk" x1="{_n(low)}" x2="{_n(high)}" y1="10" y2="10"/>')
        for x in (low, high):
            body.append(f'<line class="whisk" x1="{_n(x)}" x2="{_n(x)}" y1="3" y2="17"/>')
    return _svg(20, body, "")


@dataclass(frozen=True, slots=True)
class Curve:
    """``top``: false alerts an hour at the right edge."""

    svg: Markup
    top: float


CURVE_HEIGHT = 300.0


def curve(points: Sequence[Mapping[str, Any]], best: Mapping[str, Any] | None) -> Curve | None:
    """Misses against false alerts an hour, a dot for each threshold of the speak score, and the best of them.

    ``None`` without points.
    """
    known = [p for p in points if p.get("misses") is not None and p.get("false_alerts_per_h") is not None]
    if not known:
        return None
    misses = [float(p["misses"]) for p in known]
    false = [float(p["false_alerts_per_h"]) for p in known]
    top = ceiling(sorted(false)[math.floor(0.9 * (len(false) - 1))] or max(false))
    placed = sorted((WIDTH * min(f, top) / top, m) for f, m in zip(false, misses, strict=True))
    best_so_far = accumulate((m for _, m in placed), min)
    line = " ".join(f"{_n(x)},{_n(_up(m))}" for (x, _), m in zip(placed, best_so_far, strict=True))
    body = [f'<line class="half" x1="0" x2="{_n(WIDTH)}" y1="{_n(y)}" y2="{_n(y)}"/>' for y in (75, 150, 225)]
    body += [f'<path class="dot" d="M{_n(x)} {_n(_up(m))}h0.01"/>' for x, m in placed]
    body.append(f'<polyline class="line a" points="{line}"/>')
    if best is not None and best.get("misses") is not None:
        x = WIDTH * min(float(best["false_alerts_per_h"]), top) / top
        y = _up(float(best["misses"]))
        # A stroke of no length with round ends: a dot, however the plot is stretched.
        body.append(f'<path class="best" d="M{_n(x)} {_n(y)}h0.01"/>')
    return Curve(_svg(CURVE_HEIGHT, body, "Misses against false alerts"), top)


def _up(misses: float) -> float:
    return CURVE_HEIGHT * (1 - misses)


@dataclass(frozen=True, slots=True)
class Histogram:
    """``edges``: of the bars; ``most``: how many fall into the fullest."""

    svg: Markup
    edges: Sequence[float]
    most: int


BARS = 40
HISTOGRAM_HEIGHT = 110.0


def histogram(values: Sequence[float], label: str) -> Histogram | None:
    """How values spread, up to what 99 % lie below; what lies above is in the last bar."""
    if not values:
        return None
    ordered = sorted(values)
    top = ceiling(ordered[math.floor(0.99 * (len(ordered) - 1))])
    counts = [0] * BARS
    for value in values:
        counts[min(BARS - 1, int(value / top * BARS))] += 1
    most = max(counts)
    wide = WIDTH / BARS
    body = [
        f'<rect class="value" x="{_n(i * wide + 1)}" y="{_n(HISTOGRAM_HEIGHT * (1 - count / most))}" '
        f'width="{_n(wide - 2)}" height="{_n(HISTOGRAM_HEIGHT * count / most)}">'
        f"<title>{count} between {_n(i * top / BARS)} and {_n((i + 1) * top / BARS)}</title></rect>"
        for i, count in enumerate(counts)
        if count
    ]
    return Histogram(_svg(HISTOGRAM_HEIGHT, body, label), (0.0, top / 2, top), most)
