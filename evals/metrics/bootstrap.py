"""Confidence intervals by resampling clips. Pure and seeded.

The percentile bootstrap (Efron 1979): clips are drawn with replacement, as many as there are, and each
measure is computed anew from the sums of those drawn. Clips are the unit, since what happens within one hangs
together. Of two runs over the same clips the same draws are taken: a difference is paired by clip.

Where every clip is perfect, or none has a false alert, all draws are alike and would claim certainty. There
the far end of the interval is exact instead: of so many clips all right (Clopper and Pearson 1934, clips
being the unit), of no event in so many hours (Garwood 1936).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evals.metrics.measures import MEASURES, Measure, Unit
from evals.metrics.tally import Tally

Floats = npt.NDArray[np.float64]
Draws = npt.NDArray[np.int64]

DRAWS = 1000
CONFIDENCE = 0.95
_CELLS = 2_000_000
"""Of draws times values held at once."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measure's value and its interval.

    :param count: what it was counted over: the denominator of a ratio, the number of pooled values
    :param low: ``None`` (and ``high``) where fewer than two clips tell of it
    """

    value: float
    low: float | None
    high: float | None
    count: float


def draws(clips: int, *, seed: int, times: int = DRAWS) -> Draws:
    """How often each clip is drawn: ``times`` x ``clips``."""
    if clips == 0:
        return np.zeros((times, 0), dtype=np.int64)
    return np.random.default_rng(seed).multinomial(clips, np.full(clips, 1 / clips), size=times)


def figures(tallies: Sequence[Tally], drawn: Draws) -> dict[str, Figure]:
    """Every measure that these clips tell anything of, in the order of the table."""
    found = {measure.name: figure(measure, tallies, drawn) for measure in MEASURES}
    return {name: one for name, one in found.items() if one is not None}


def figure(measure: Measure, tallies: Sequence[Tally], drawn: Draws) -> Figure | None:
    """One measure; ``None`` where nothing was counted."""
    value = resampled(measure, tallies, np.ones((1, len(tallies)), dtype=np.int64))[0]
    if np.isnan(value):
        return None
    clips, count = _tell(measure, tallies), _count(measure, tallies)
    if clips < 2:
        return Figure(float(value), None, None, count)
    low, high = interval(resampled(measure, tallies, drawn))
    if measure.values is None and low == high:
        low, high = _exact(measure, float(value), clips, count)
    return Figure(float(value), low, high, count)


def _exact(measure: Measure, value: float, clips: int, count: float) -> tuple[float, float]:
    """The interval of a value at the very end of its range; of any other value that value."""
    edge = (1 - CONFIDENCE) / 2
    if measure.unit is Unit.PER_HOUR and value == 0:
        return 0.0, -math.log(edge) / count
    if measure.unit is Unit.SHARE and value == 1:
        return edge ** (1 / clips), 1.0
    if measure.unit is Unit.SHARE and value == 0:
        return 0.0, 1 - edge ** (1 / clips)
    return value, value


def difference(
    measure: Measure, first: Sequence[Tally], second: Sequence[Tally], drawn: Draws
) -> Figure | None:
    """Second less first over the same clips in the same order; ``None`` where one of them tells nothing."""
    once = np.ones((1, len(first)), dtype=np.int64)
    value = (resampled(measure, second, once) - resampled(measure, first, once))[0]
    if np.isnan(value):
        return None
    if min(_tell(measure, first), _tell(measure, second)) < 2:
        return Figure(float(value), None, None, len(first))
    low, high = interval(resampled(measure, second, drawn) - resampled(measure, first, drawn))
    return Figure(float(value), low, high, len(first))


def interval(samples: Floats) -> tuple[float | None, float | None]:
    """Where the middle ``CONFIDENCE`` of the samples lies; samples that told nothing are left out."""
    known = samples[~np.isnan(samples)]
    if not known.size:
        return None, None
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(known, [edge, 1 - edge])
    return float(low), float(high)


def resampled(measure: Measure, tallies: Sequence[Tally], drawn: Draws) -> Floats:
    """The measure of each draw; not a number where nothing was counted."""
    if measure.values is not None:
        return _percentiles(measure.values, measure.percentile, tallies, drawn)
    sums = np.array([t.ratios.get(measure.name, (0.0, 0.0)) for t in tallies]).reshape(len(tallies), 2)
    above, below = (drawn @ sums).T
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios: Floats = np.where(below > 0, above / below, np.nan)
    return ratios


def _percentiles(name: str, share: float, tallies: Sequence[Tally], drawn: Draws) -> Floats:
    values = np.array([v for tally in tallies for v in tally.values.get(name, ())], dtype=np.float64)
    owner = np.array([n for n, t in enumerate(tallies) for _ in t.values.get(name, ())], dtype=np.int64)
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    if not values.size:
        return np.full(len(drawn), np.nan)
    rows = max(1, _CELLS // values.size)
    parts = [_quantiles(values, drawn[n : n + rows][:, owner], share) for n in range(0, len(drawn), rows)]
    return np.concatenate(parts)


def _quantiles(values: Floats, times: Draws, share: float) -> Floats:
    """A quantile of each draw, linear between ranks: ``values`` in order, each drawn so many ``times``."""
    last = np.cumsum(times, axis=1)
    drawn = last[:, -1]
    place = share * np.maximum(drawn - 1, 0)
    low, high = (
        values[np.argmax(last > rank[:, None], axis=1)] for rank in (np.floor(place), np.ceil(place))
    )
    found: Floats = np.where(drawn > 0, low + (high - low) * (place - np.floor(place)), np.nan)
    return found


def _tell(measure: Measure, tallies: Sequence[Tally]) -> int:
    """Clips that tell anything of the measure."""
    if measure.values is not None:
        return sum(bool(tally.values.get(measure.values)) for tally in tallies)
    return sum(measure.name in tally.ratios for tally in tallies)


def _count(measure: Measure, tallies: Sequence[Tally]) -> float:
    if measure.values is not None:
        return float(sum(len(tally.values.get(measure.values, ())) for tally in tallies))
    return sum(tally.ratios[measure.name][1] for tally in tallies if measure.name in tally.ratios)


def to_json(found: Mapping[str, Figure]) -> dict[str, dict[str, float | None]]:
    """As ``scores.json`` holds figures."""
    return {
        name: {"value": one.value, "low": one.low, "high": one.high, "count": one.count}
        for name, one in found.items()
    }
