"""One record per unit: when it was written, what the model decided on it, how long that took.

A decision counts for the oldest unit that has none. An engine that says nothing of single units leaves them
without an action; they are recorded all the same once ``OPEN`` younger ones were written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.backends.native.facts import MediaGap, NativeFact, UnitsWritten
from orchestrator.backends.native.units import Unit
from orchestrator.session.backend import Action, BackendOutput, TickDone
from orchestrator.session.fence import Fence

RECENT = 256
"""Units that are still known by the id of their append, decided on or not, without what they carried."""
OPEN = 8
RUN_MS = 1000
"""Of units that one fact tells of."""


@dataclass(slots=True)
class _Written:
    unit: Unit
    generation: int
    at: float


class UnitRecords:
    """:param put: takes the facts; ``now``: monotonic seconds"""

    def __init__(
        self, put: Callable[[NativeFact], None], now: Callable[[], float], samples_per_ms: float
    ) -> None:
        self._put = put
        self._now = now
        self._samples_per_ms = samples_per_ms
        self._began = now()
        self._open: OrderedDict[str, _Written] = OrderedDict()
        self._recent: OrderedDict[str, Unit] = OrderedDict()
        self._rows: list[tuple[Any, ...]] = []
        self._tick = 0
        self.written = 0
        self.answered = 0
        self.generation = 0
        self._former = 0

    def tick(self) -> int:
        """Number of the decision that comes next."""
        self._tick += 1
        return self._tick

    @property
    def undecided(self) -> int:
        """Units that nothing was said of yet."""
        return len(self._open)

    def sent(self, unit: Unit, event_id: str, fence: Fence) -> list[BackendOutput]:
        """A unit was written; records that are due because of it."""
        self._open[event_id] = _Written(unit, self.generation, self._now())
        self.written += 1
        self._recent[event_id] = replace(unit, pcm=None, frames=())
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        outputs: list[BackendOutput] = []
        while len(self._open) > OPEN:
            outputs.append(self._close(next(iter(self._open)), fence, None))
        return outputs

    def sent_behind(self, unit: Unit, event_id: str, fence: Fence) -> list[BackendOutput]:
        """A unit was written to an engine session that had been left meanwhile."""
        self.written += 1
        self._open[event_id] = _Written(unit, self._former, self._now())
        return [self._close(event_id, fence, None)]

    def decided(self, action: str, fence: Fence) -> tuple[list[BackendOutput], float | None]:
        """The model decided on the oldest unit. Its record, and the ms that it took."""
        if not self._open:
            return [], None
        event_id, written = next(iter(self._open.items()))
        took = (self._now() - written.at) * 1000
        self.answered += 1
        return [self._close(event_id, fence, action)], took

    def unit_of(self, event_id: str) -> Unit | None:
        return self._recent.get(event_id)

    def lost(self, event_ids: tuple[str, ...] | None, reason: str) -> None:
        """These units, or all that nothing was said of, may never have reached the model."""
        ids = list(self._open) if event_ids is None else [each for each in event_ids if each in self._recent]
        for each in ids:
            # What was said of the unit before it may have been taken for a word on this one.
            if (written := self._open.pop(each, None)) is not None:
                self._row(written, "lost", None)
        self.gap([self._recent[each] for each in ids], reason)

    def gap(self, units: list[Unit], reason: str) -> None:
        if units:
            numbers = tuple(unit.number for unit in units)
            start, end = min(unit.start_ms for unit in units), max(unit.end_ms for unit in units)
            self._put(MediaGap(numbers, start, end, reason))

    def begin(self, generation: int, fence: Fence) -> list[BackendOutput]:
        """Another engine session goes on: nothing more is said of the units that wait for a decision."""
        self._former, self.generation = self.generation, generation
        return [self._close(event_id, fence, None) for event_id in tuple(self._open)]

    def cleared(self, operations: tuple[str, ...], fence: Fence) -> TickDone:
        """These appends were dropped before the model had them: no unit will answer them."""
        row = {
            "tick": self._tick,
            "action": Action.SILENCE.value,
            "reason": "cleared",
            "text": "",
            "status": "dropped",
            "operations": list(operations),
        }
        return TickDone(fence, self._tick, operations, row)

    def flush(self) -> None:
        """Tell what is recorded so far."""
        if self._rows:
            self._put(UnitsWritten(tuple(self._rows)))
            self._rows = []

    def end(self) -> None:
        for written in self._open.values():
            self._row(written, None, None)
        self._open.clear()
        self.flush()

    def statistics(self) -> dict[str, int]:
        return {"written": self.written, "answered": self.answered, "open": len(self._open)}

    # --- parts ----------------------------------------------------------------------------------------

    def _close(self, event_id: str, fence: Fence, action: str | None) -> BackendOutput:
        written = self._open.pop(event_id)
        took = None if action is None else round((self._now() - written.at) * 1000, 1)
        unit = written.unit
        self._row(written, action, took)
        tick = self.tick()
        record = {
            "tick": tick,
            "unit": unit.number,
            "media_time_s": unit.end_ms / 1000,
            "action": action,
            "modality": unit.modality.value,
            "origin": unit.origin.value,
            "unit_ms": unit.duration_ms,
            "bytes": unit.size,
            "frames": len(unit.frames),
            "latency_ms": took,
            "generation": written.generation,
        }
        return TickDone(fence, tick, unit.operations, record)

    def _row(self, written: _Written, action: str | None, took: float | None) -> None:
        unit = written.unit
        self._rows.append(
            (
                unit.number,
                written.generation,
                unit.start_ms,
                unit.end_ms,
                unit.size,
                len(unit.frames),
                unit.modality.value,
                unit.origin.value,
                round(unit.padded / self._samples_per_ms),
                round((written.at - self._began) * 1000),
                action,
                took,
            )
        )
        if self._rows[-1][3] - self._rows[0][2] >= RUN_MS or len(self._rows) >= 64:
            self.flush()
