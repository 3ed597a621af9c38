"""Misses against false alerts for every threshold, from the scores that one run recorded. Pure.

A tick would speak where its score reaches the threshold. Of ticks in a row that would, the first alone
counts: a model that has just spoken does not speak again of the same sight. The curve is what the scores say;
a run at another threshold would also remember other words of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evals.metrics.acts import Act
from evals.metrics.matching import EDGE_S, match_times
from evals.readers.clip import Clip, Kind, Slot

POINTS = 101
"""At most so many thresholds: quantiles of the scores where there are more."""

ALERTING = frozenset({Kind.ALERT, Kind.REPEAT, Kind.COUNT})
"""Kinds whose moment the model chooses itself."""


@dataclass(frozen=True, slots=True)
class Point:
    """One threshold.

    :param misses: share of slots without a reply; ``false_alerts_per_h``: onsets outside of every span
    """

    threshold: float
    misses: float
    false_alerts_per_h: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class Scored:
    """One clip: its acts in time order, as ``acts_of`` gives them, and how long it was watched."""

    clip: Clip
    acts: Sequence[Act]
    watched_s: float


def operating_curve(
    scored: Iterable[Scored], kinds: frozenset[Kind] = ALERTING, points: int = POINTS
) -> list[Point]:
    """From the lowest threshold to the highest; empty where no score was recorded or nothing is to be found.

    Queries without a slot of these ``kinds`` are left out, time and scores included; one whose event never
    comes belongs in where its skill is one of them.
    """
    parts = [part for one in scored for part in _parts(one, kinds)]
    scores = sorted({act.score for _, acts, _ in parts for act in acts if act.score is not None})
    if not scores or not any(slots for slots, _, _ in parts):
        return []
    if len(scores) > points:
        step = (len(scores) - 1) / (points - 1)
        scores = sorted({scores[round(n * step)] for n in range(points)})
    return [_point(parts, threshold) for threshold in scores]


def best_of(curve: Sequence[Point]) -> Point | None:
    """The highest F1; of equals the one with fewer false alerts."""
    return max(curve, key=lambda point: (point.f1, -point.false_alerts_per_h), default=None)


def curve_json(curve: Sequence[Point]) -> list[dict[str, Any]]:
    return [asdict(point) for point in curve]


_Part = tuple[Sequence[Slot], Sequence[Act], float]


def _parts(scored: Scored, kinds: frozenset[Kind]) -> list[_Part]:
    """By query: its slots, the acts while it was in force, and for how many seconds that was."""
    parts: list[_Part] = []
    for query in scored.clip.queries:
        mine = scored.clip.slots_of(query.id)
        if not (any(slot.kind in kinds for slot in mine) or (not mine and query.skill in kinds)):
            continue
        slots = [slot for slot in mine if slot.kind in kinds and slot.start_s < scored.watched_s]
        acts = [act for act in scored.acts if act.query == query.id]
        # Without any, it was never asked.
        if acts:
            parts.append((slots, acts, _period(scored.acts) * len(acts)))
    return parts


def _period(acts: Sequence[Act]) -> float:
    """Seconds between decisions, on average."""
    if len(acts) < 2:
        return 1.0
    return (acts[-1].at_s - acts[0].at_s) / (len(acts) - 1)


def _point(parts: Sequence[_Part], threshold: float) -> Point:
    hits = slots_in_all = false = onsets = 0
    seconds = 0.0
    for slots, acts, length in parts:
        times = _onsets(acts, threshold)
        spans = [(slot.start_s, slot.end_s, slot.start_s) for slot in slots]
        hits += len(match_times(times, spans, [[True] * len(spans)] * len(times)))
        false += sum(not any(start - EDGE_S <= at <= end + EDGE_S for start, end, _ in spans) for at in times)
        slots_in_all, onsets, seconds = slots_in_all + len(slots), onsets + len(times), seconds + length
    recall = hits / slots_in_all
    precision = hits / onsets if onsets else 1.0
    f1 = 2 * hits / (onsets + slots_in_all)
    return Point(threshold, 1 - recall, false / (seconds / 3600), precision, recall, f1)


def _onsets(acts: Sequence[Act], threshold: float) -> list[float]:
    times, speaking = [], False
    for act in acts:
        speaks = act.score is not None and act.score >= threshold
        if speaks and not speaking:
            times.append(act.at_s)
        speaking = speaks
    return times
