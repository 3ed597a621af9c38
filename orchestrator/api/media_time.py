"""Media times as clients write them: range fields, range headers, and a time tag in the text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.wire.errors import InvalidRequest

_NUMBER = r"(\d{1,10}(?:\.\d{1,9})?)"
_UNIT = r"\s*(?:seconds?|secs?|s)?\s*"
_RANGE = re.compile(
    rf"\s*[<\[(]?\s*{_NUMBER}{_UNIT}(?:(?:-|~|–|,|to|\.\.)\s*{_NUMBER}{_UNIT})?[>\])]?\s*", re.I
)
_TAG = re.compile(rf"\s*<\s*{_NUMBER}\s*(?:(?:-|~|–)\s*{_NUMBER}\s*)?seconds?\s*>\s*", re.I)

_START_KEYS = ("start", "start_s", "start_time", "from")
_END_KEYS = ("end", "end_s", "end_time", "to")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Seconds on the session's media clock. ``end``: exclusive, ``None`` where only a start was given."""

    start: float
    end: float | None = None

    def spread(self, count: int, period_s: float) -> list[int]:
        """Start times of ``count`` frames that share this range, in ms."""
        width = self.end - self.start if self.end is not None and self.end > self.start else period_s
        return [round(1000 * (self.start + width * i / count)) for i in range(count)]


def parse_range(value: Any, param: str) -> TimeRange:
    """``"12.0-13.0"``, ``"<12.0 seconds>"``, ``12.0``, ``[12.0, 13.0]``, ``{"start": 12.0, "end": 13.0}``."""
    numbers: list[Any]
    if isinstance(value, str):
        match = _RANGE.fullmatch(value)
        numbers = [float(n) for n in match.groups() if n is not None] if match else []
    elif isinstance(value, Mapping):
        numbers = [next((value[k] for k in keys if k in value), None) for keys in (_START_KEYS, _END_KEYS)]
        numbers = numbers[:1] if numbers[1] is None else numbers
    elif isinstance(value, Sequence):
        numbers = list(value)
    else:
        numbers = [value]
    good = all(isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n < 1e10 for n in numbers)
    if not good or not 1 <= len(numbers) <= 2 or not all(map(math.isfinite, numbers)):
        raise InvalidRequest(
            f"{param} is no time range: write seconds as 12.0-13.0, [12.0, 13.0] or 12.0",
            code="invalid_time_range",
            param=param,
        )
    return TimeRange(*map(float, numbers))


def take_tag(text: str) -> tuple[TimeRange | None, str]:
    """A leading ``<12.0 seconds>`` (or ``<12.0-13.0 seconds>``) and the text behind it."""
    match = _TAG.match(text)
    if match is None:
        return None, text
    start, end = match.groups()
    return TimeRange(float(start), float(end) if end else None), text[match.end() :]
