"""From samples of any size to exact units on the stream's own clock. Sans-IO.

::

    append --split--> closed units (one frame group each, oldest first) + residual samples
    tail   --pad----> the residual as one last unit

A frame group without audio is a unit of its own where the engine takes it; otherwise it rides the unit that
is being filled, or gets a unit of silence where no audio flows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.session.units import InputUnit, Modality

SAMPLE_BYTES = 4
MAX_GROUPS = 64
"""Frame groups that wait for a unit to ride."""

Group = tuple[bytes, ...]


class Origin(StrEnum):
    """Why a unit exists."""

    CLIENT = "client"
    PAD = "pad"
    """The client's, filled up with silence."""
    SILENCE = "silence"
    """Silence that keeps the model's clock going."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One append towards the engine.

    :param number: of the unit on the stream's clock; a frame group alone has that of the next audio
    :param pcm: float32 mono, exactly one unit of samples, or ``None``
    :param start_ms, end_ms: on the stream's own clock
    :param padded: samples of silence at its end
    :param first_audio: the first audio of this stream
    :param operations: appends whose last byte rides it
    """

    number: int
    pcm: bytes | None
    frames: Group
    start_ms: int
    end_ms: int
    origin: Origin = Origin.CLIENT
    padded: int = 0
    speech: bool | None = None
    first_audio: bool = False
    operations: tuple[str, ...] = ()

    @property
    def modality(self) -> Modality:
        if self.pcm is None:
            return Modality.VISION
        return Modality.OMNI if self.frames else Modality.AUDIO

    @property
    def size(self) -> int:
        return len(self.pcm or b"") + sum(map(len, self.frames))

    @property
    def duration_ms(self) -> int:
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class Held:
    """What waits to become a unit. Immutable: a rollback puts an earlier one back.

    :param number: of the next audio unit
    """

    samples: bytes = b""
    speech: bool | None = None
    groups: tuple[Group, ...] = ()
    operations: tuple[str, ...] = ()
    number: int = 0

    @property
    def size(self) -> int:
        return len(self.samples) + sum(len(frame) for group in self.groups for frame in group)


class Splitter:
    """One stream's. Every sample that goes in comes out once, in order.

    :param unit_samples: of one unit, ``unit_ms`` long
    :param frame_units: the engine takes a frame group without audio
    """

    def __init__(self, unit_samples: int, unit_ms: int, *, frame_units: bool) -> None:
        self._unit_bytes = unit_samples * SAMPLE_BYTES
        self._unit_ms = unit_ms
        self._frame_units = frame_units
        self.held = Held()

    def append(self, given: InputUnit, operation_id: str, *, flowing: bool) -> tuple[Unit, ...]:
        """Units that this append closes. ``flowing``: audio comes steadily, so a frame can ride it."""
        units: list[Unit] = []
        parts = given.parts or (given,)
        for part in parts:
            group = tuple(frame.data for frame in part.frames)
            if part.pcm:
                self._queue(group)
                units += self._fill(part.pcm, part.speech)
            elif group and self._frame_units:
                units.append(self._vision(group))
            elif group and (self.held.samples or flowing):
                self._queue(group)
            elif group:
                self._queue(group)
                units.append(self._close(padded=self._unit_bytes // SAMPLE_BYTES, origin=Origin.PAD))
        alone = given.pcm is None and bool(units) and units[-1].pcm is None
        if units and (alone or not (self.held.samples or self.held.groups)):
            units[-1] = replace(units[-1], operations=(*units[-1].operations, operation_id))
        else:
            self.held = replace(self.held, operations=(*self.held.operations, operation_id))
        return tuple(units)

    def tail(self) -> tuple[Unit, ...]:
        """Everything that is held, closed now: the residual filled up, then frames that nothing carried."""
        units: list[Unit] = []
        if self.held.samples:
            units.append(self._padded())
        while self.held.groups:
            if self._frame_units:
                group, *rest = self.held.groups
                self.held = replace(self.held, groups=tuple(rest))
                units.append(self._vision(group))
            else:
                units.append(self._padded())
        if units and self.held.operations:
            operations = (*units[-1].operations, *self.held.operations)
            units[-1] = replace(units[-1], operations=operations)
            self.held = replace(self.held, operations=())
        return tuple(units)

    def silence(self) -> Unit:
        """One unit of silence; it is only made when nothing is held."""
        return self._close(padded=self._unit_bytes // SAMPLE_BYTES, origin=Origin.SILENCE)

    def give_back(self, unit: Unit) -> None:
        """A unit of silence that was not written leaves no hole in the clock."""
        if self.held.number == unit.number + 1:
            self.held = replace(self.held, number=unit.number)

    def drop(self) -> tuple[str, ...]:
        """Forget what is held; the appends it came in. The clock goes on where it was."""
        operations = self.held.operations
        self.held = Held(number=self.held.number)
        return operations

    def waits(self, groups: int = 1) -> bool:
        """That many more frame groups find a place."""
        return len(self.held.groups) + groups <= MAX_GROUPS

    # --- parts --------------------------------------------------------------------------------------------

    def _queue(self, group: Group) -> None:
        if group:
            self.held = replace(self.held, groups=(*self.held.groups, group))

    def _fill(self, pcm: bytes, speech: bool | None) -> list[Unit]:
        units: list[Unit] = []
        at = 0
        while at < len(pcm):
            taken = pcm[at : at + self._unit_bytes - len(self.held.samples)]
            at += len(taken)
            heard = [each for each in (self.held.speech, speech) if each is not None]
            self.held = replace(
                self.held, samples=self.held.samples + taken, speech=any(heard) if heard else None
            )
            if len(self.held.samples) == self._unit_bytes:
                units.append(self._close())
        return units

    def _padded(self) -> Unit:
        missing = self._unit_bytes - len(self.held.samples)
        return self._close(padded=missing // SAMPLE_BYTES, origin=Origin.PAD)

    def _close(self, *, padded: int = 0, origin: Origin = Origin.CLIENT) -> Unit:
        held = self.held
        frames, rest = (held.groups[0], held.groups[1:]) if held.groups else ((), ())
        unit = Unit(
            held.number,
            held.samples + bytes(padded * SAMPLE_BYTES),
            frames,
            held.number * self._unit_ms,
            (held.number + 1) * self._unit_ms,
            origin,
            padded,
            held.speech,
            first_audio=held.number == 0,
            operations=() if rest else held.operations,
        )
        self.held = Held(groups=rest, operations=held.operations if rest else (), number=held.number + 1)
        return unit

    def _vision(self, group: Group) -> Unit:
        at = self.held.number * self._unit_ms
        return Unit(self.held.number, None, group, at, at)


class StreamClock:
    """When the next audio unit may go: never more than ``lead`` units ahead of the time that has passed.

    Times are monotonic seconds. The clock starts with the first unit and does not wait for slow writes; a
    pause of the client is no time to make up for, an outage of the engine is.
    """

    def __init__(self, unit_s: float, lead: int) -> None:
        self._unit_s = unit_s
        self._lead = lead
        self._origin: float | None = None
        self.sent = 0

    def due(self) -> float | None:
        """When the next unit may go; ``None``: at once."""
        if self._origin is None:
            return None
        return self._origin + (self.sent + 1 - self._lead) * self._unit_s

    def went(self, now: float) -> None:
        """A unit was released."""
        if self._origin is None:
            self._origin = now
        self.sent += 1

    def rested(self, now: float) -> None:
        """Nothing waited until now."""
        if self._origin is not None:
            self._origin = max(self._origin, now - self.sent * self._unit_s)
