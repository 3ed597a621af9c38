"""Inline SVG of a run: plain numbers in, markup out. Nothing from a model or a user reaches these strings.

Every plot is ``WIDTH`` units wide, stretched to the page by the browser; labels are the page's own text, so
they stay readable on a phone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

WIDTH = 1000.0
MAX_BINS = 500
"""Columns a plot has at most; longer runs put several ticks into one."""


@dataclass(frozen=True, slots=True)
class Bins:
    """How ``ticks`` rows fall into columns of equal width."""

    ticks: int

    @property
    def count(self) -> int:
        return min(self.ticks, MAX_BINS)

    @property
    def width(self) -> float:
        return WIDTH / self.count if self.count else WIDTH

    def rows(self, column: int) -> range:
        """Row numbers in a column, never empty."""
        start = column * self.ticks // self.count
        return range(start, (column + 1) * self.ticks // self.count)

    def x(self, row: int) -> float:
        """Left edge of a row, in plot units."""
        return WIDTH * row / self.ticks if self.ticks else 0.0


def ceiling(value: float) -> float:
    """The next round figure (1, 2, 2.5 or 5 times a power of ten) at or above ``value``; 1 for nothing."""
    if value < sys.float_info.min:  # numbers below it have too few digits for the powers
        return 1.0
    step = 10.0 ** floor(log10(value))
    return next(m * step for m in (1.0, 2.0, 2.5, 5.0, 10.0) if value <= m * step * (1 + 1e-9))


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _svg(height: float, body: Sequence[str], label: str) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {_n(WIDTH)} {_n(height)}" preserveAspectRatio="none" role="img" '
        f'aria-label="{Markup.escape(label)}">' + "".join(body) + "</svg>"
    )


def _boundaries(bins: Bins, boundaries: Sequence[int], height: float) -> list[str]:
    return [
        f'<line class="boundary" x1="{_n(bins.x(b))}" x2="{_n(bins.x(b))}" y1="0" y2="{_n(height)}"/>'
        for b in boundaries
    ]


RIBBON_HEIGHT = 64.0
HEIGHTS = {"delegate": 1.0, "response": 0.78, "failed": 0.6, "deduplicated": 0.4}
"""Height of a bar by kind of tick, so that kinds can be told apart without colour; the rest: 0.16."""
RANK = ("delegate", "response", "failed", "deduplicated")
"""Which kind a column shows when several ticks share it."""


def ribbon(kinds: Sequence[str], boundaries: Sequence[int], label: str) -> Markup:
    """One bar a tick, its height and class (``k-KIND``) by what was decided."""
    bins = Bins(len(kinds))
    body: list[str] = []
    for column in range(bins.count):
        members = [kinds[i] for i in bins.rows(column)]
        kind = next((k for k in RANK if k in members), members[0])
        height = RIBBON_HEIGHT * HEIGHTS.get(kind, 0.16)
        top = _n(RIBBON_HEIGHT - height)
        gap = 0.15 * bins.width if bins.count <= 300 else 0.0
        body.append(
            f'<rect class="k-{kind}" x="{_n(column * bins.width + gap / 2)}" y="{top}" '
            f'width="{_n(bins.width - gap)}" height="{_n(height)}"/>'
        )
    return _svg(RIBBON_HEIGHT, [*body, *_boundaries(bins, boundaries, RIBBON_HEIGHT)], label)


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot and the figures its labels need.

    ``top`` is the value at the upper edge, ``clipped`` how many values lie above it.
    """

    svg: Markup
    top: float
    clipped: int = 0


PLOT_HEIGHT = 150.0


def lines(
    series: Sequence[tuple[str, Sequence[float | None]]], boundaries: Sequence[int], label: str
) -> Plot:
    """Lines over the ticks, one per ``(class, values)``; gaps where a value is ``None``.

    Where several ticks share a column the line follows their median and a band spans their range. The upper
    edge is set by the bulk of the values: a lone outlier (a cold start) is clipped and counted.
    """
    known = sorted(v for _, values in series for v in values if v is not None)
    bins = Bins(len(series[0][1]) if series else 0)
    if not known:
        return Plot(_svg(PLOT_HEIGHT, [], label), 1.0)
    bulk = known[floor(0.95 * (len(known) - 1))]
    top = ceiling(known[-1] if known[-1] <= 3 * bulk else 1.5 * bulk)
    body = _boundaries(bins, boundaries, PLOT_HEIGHT)
    for name, values in series:
        for run in _columns(bins, values):
            mid = " ".join(f"{_n(x)},{_n(_y(m, top))}" for x, _, m, _ in run)
            if any(low != high for _, low, _, high in run):
                upper = [f"{_n(x)},{_n(_y(high, top))}" for x, _, _, high in run]
                lower = [f"{_n(x)},{_n(_y(low, top))}" for x, low, _, _ in reversed(run)]
                body.append(f'<polygon class="band {name}" points="{" ".join(upper + lower)}"/>')
            # A run of one column would be an invisible line: draw it as wide as its column.
            if len(run) == 1:
                x, y = run[0][0], _y(run[0][2], top)
                mid = f"{_n(x - bins.width / 2)},{_n(y)} {_n(x + bins.width / 2)},{_n(y)}"
            body.append(f'<polyline class="line {name}" points="{mid}"/>')
    return Plot(_svg(PLOT_HEIGHT, body, label), top, sum(v > top for v in known))


def _y(value: float, top: float) -> float:
    return PLOT_HEIGHT * (1 - min(value, top) / top)


def _columns(bins: Bins, values: Sequence[float | None]) -> list[list[tuple[float, float, float, float]]]:
    """Runs of neighbouring columns that hold values: (x of the middle, lowest, median, highest)."""
    runs: list[list[tuple[float, float, float, float]]] = [[]]
    for column in range(bins.count):
        known = sorted(v for i in bins.rows(column) if (v := values[i]) is not None)
        if known:
            x = (column + 0.5) * bins.width
            runs[-1].append((x, known[0], known[len(known) // 2], known[-1]))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def stacked(
    lower: Sequence[float | None], total: Sequence[float | None], boundaries: Sequence[int], label: str
) -> Plot:
    """Bars of two parts a tick: ``lower`` (class ``low``) and the rest up to ``total`` (class ``rest``).

    Where several ticks share a column the one with the largest rest is shown: a costly tick is never hidden.
    """
    bins = Bins(len(total))
    top = ceiling(max((v for v in total if v is not None), default=0.0))
    body: list[str] = []
    for column in range(bins.count):
        pairs = [(lower[i] or 0.0, t) for i in bins.rows(column) if (t := total[i]) is not None]
        if not pairs:
            continue
        low, whole = max(pairs, key=lambda p: p[1] - p[0])
        x, width = _n(column * bins.width), _n(bins.width * 1.02)
        y_low, y_whole = _y(low, top), _y(whole, top)
        body.append(
            f'<rect class="low" x="{x}" y="{_n(y_low)}" width="{width}" height="{_n(PLOT_HEIGHT - y_low)}"/>'
            f'<rect class="rest" x="{x}" y="{_n(y_whole)}" width="{width}" height="{_n(y_low - y_whole)}"/>'
        )
    return Plot(_svg(PLOT_HEIGHT, [*body, *_boundaries(bins, boundaries, PLOT_HEIGHT)], label), top)
