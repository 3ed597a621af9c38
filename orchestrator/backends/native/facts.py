"""Facts of a native session that memory does not fold: what its engine sessions were given.

Units are told in runs of about a second, one row each, so that a session of hours stays small.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

UNIT_COLUMNS = (
    *("unit", "generation", "start_ms", "end_ms", "bytes", "frames", "modality", "origin", "padded_ms"),
    *("written_ms", "action", "answered_ms"),
)
"""Of a row of ``units_written``. ``start_ms``, ``end_ms``: on the stream's own clock; ``written_ms``: since
the session opened; ``origin``: client, pad or silence; ``action``: listen, speak, lost, or ``null`` where the
engine said nothing of the unit; ``answered_ms``: after the write."""


@dataclass(frozen=True, slots=True)
class NativeFact:
    kind: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """The ``data`` of the log entry: JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EngineSessionEnded(NativeFact):
    """``confirmed``: the engine said so."""

    kind: ClassVar[str] = "engine_session_ended"
    generation: int
    reason: str
    confirmed: bool


@dataclass(frozen=True, slots=True)
class UnitsWritten(NativeFact):
    """``rows``: see ``UNIT_COLUMNS``."""

    kind: ClassVar[str] = "units_written"
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class MediaGap(NativeFact):
    """Input that was written, and perhaps never reached the model: it is not sent twice.

    ``reason``: ``unconfirmed`` after a lost link, or the code that the engine refused it with.
    """

    kind: ClassVar[str] = "media_gap"
    units: tuple[int, ...]
    start_ms: int
    end_ms: int
    reason: str
