"""The table of measures: what each is called, its unit, and which way is better.

A measure is a ratio of sums over clips (so that clips can be resampled), or a percentile of pooled values.
Defined in words in ``docs/evals.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TOLERANCES_S = (1, 2, 5)
"""Tolerances of the onset measures."""


class Unit(StrEnum):
    SHARE = "share"
    SECONDS = "s"
    PER_HOUR = "per hour"


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Measure:
    """:param short: heads a column
    :param values: pooled values it is the ``percentile`` of (0 to 1); ``None``: it is a ratio
    """

    name: str
    title: str
    short: str
    unit: Unit = Unit.SHARE
    better: Better = Better.HIGHER
    values: str | None = None
    percentile: float = 0.5


def _onset(tolerance: int) -> tuple[Measure, ...]:
    return (
        Measure(f"onset_f1_{tolerance}s", f"onset F1 at {tolerance} s", f"F1@{tolerance}s"),
        Measure(f"onset_precision_{tolerance}s", f"onset precision at {tolerance} s", f"P@{tolerance}s"),
        Measure(f"onset_recall_{tolerance}s", f"onset recall at {tolerance} s", f"R@{tolerance}s"),
    )


_SECONDS, _HOUR, _LOWER = Unit.SECONDS, Unit.PER_HOUR, Better.LOWER

MEASURES: tuple[Measure, ...] = (
    *_onset(1),
    *_onset(2),
    *_onset(5),
    Measure("delay_mean", "delay, mean (signed)", "delay", _SECONDS, _LOWER),
    Measure("delay_p50", "delay, median", "delay p50", _SECONDS, _LOWER, "delay_s", 0.5),
    Measure("delay_p90", "delay, 90 % within", "delay p90", _SECONDS, _LOWER, "delay_s", 0.9),
    Measure(
        "felt_p90", "delay with the engine's time, 90 % within", "felt p90", _SECONDS, _LOWER, "felt_s", 0.9
    ),
    Measure("false_alerts_per_h", "false alerts", "false/h", _HOUR, _LOWER),
    Measure("early_silence", "silent ticks before evidence", "early silence"),
    Measure("early_kept", "slots kept silent before evidence", "early kept"),
    Measure("silence", "silent ticks where nothing may be said", "silence"),
    Measure("repeat_rate", "same words again", "repeats", better=_LOWER),
    Measure("extra_rate", "said again within a slot", "extra", better=_LOWER),
    Measure("answered", "slots replied to", "answered"),
    Measure("accuracy", "slots right, of all", "right"),
    Measure("accuracy_answered", "slots right, of those replied to", "right of answered"),
    Measure("official", "right by the data set's own rule", "official"),
    Measure("official_strict", "the same slots by the strict rule", "strict"),
    Measure("memory", "memory questions right", "memory"),
    Measure("delegation", "delegated or not, as wanted", "delegation"),
    Measure("delegation_recall", "hard ones delegated", "delegated"),
    Measure("delegation_precision", "delegations that were wanted", "wanted"),
)

BY_NAME = {measure.name: measure for measure in MEASURES}
