"""``Span``: a stretch of work with a beginning and an end, as traces are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """One that is over. Times are Unix nanoseconds.

    :param outgoing: it is a call to another system, which may go on with the trace
    :param span_id: ``None``: a random one
    :param events: moments in it, by name
    :param error: why it failed
    """

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: Sequence[tuple[str, int]] = ()
    outgoing: bool = False
    span_id: int | None = None
    error: str | None = None
