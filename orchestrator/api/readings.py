"""``Reading``: a figure that is read when somebody scrapes, rather than counted as things happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isinf
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Durations(Protocol):
    """How long something took: upper ends of buckets with how many took no longer, and their sum."""

    @property
    def total_s(self) -> float: ...

    def buckets(self) -> list[tuple[float, int]]: ...


@dataclass(frozen=True, slots=True)
class ByTwo:
    """Several values by two labels each. All are plain numbers, or all are durations."""

    values: Mapping[tuple[str, str], float | Durations]
    labels: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """
    :param text: what it is, as the scrape says it
    :param value: a number; one for each value of ``label``; or durations, which make a histogram
    """

    text: str
    value: float | Mapping[str, float] | Durations | ByTwo
    label: str = ""


Readings = Mapping[str, Reading]
"""By name without prefix. What only ever grows has a name that ends in ``_total``."""


def named(figures: Mapping[str, float], names: Mapping[str, tuple[str, str]]) -> dict[str, Reading]:
    """:param names: name and text of each figure; those that are not told are left out"""
    return {name: Reading(text, figures[key]) for key, (name, text) in names.items() if key in figures}


class ReadingsCollector(Collector):
    """Gives the registry what ``read`` tells at each scrape."""

    def __init__(self, read: Callable[[], Readings]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for name, reading in self._read().items():
            yield _family(f"vigil_{name}", reading)


def _family(name: str, reading: Reading) -> Metric:
    value = reading.value
    if isinstance(value, ByTwo):
        return _by_two(name, reading.text, value)
    if not isinstance(value, int | float | Mapping):
        return HistogramMetricFamily(name, reading.text, buckets=_ends(value), sum_value=value.total_s)
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return kind(name, reading.text, value=value)
    family = kind(name, reading.text, labels=(reading.label,))
    for of, number in value.items():
        family.add_metric((of,), number)
    return family


def _by_two(name: str, text: str, table: ByTwo) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    numbers = kind(name, text, labels=table.labels)
    histogram = HistogramMetricFamily(name, text, labels=table.labels)
    for labels, value in table.values.items():
        if isinstance(value, int | float):
            numbers.add_metric(labels, value)
        else:
            histogram.add_metric(labels, _ends(value), value.total_s)
    return histogram if histogram.samples else numbers


def _ends(durations: Durations) -> list[tuple[str, int]]:
    return [("+Inf" if isinf(end) else str(end), count) for end, count in durations.buckets()]
