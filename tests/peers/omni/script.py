"""What the scripted model does with each unit it hears: knobs that a test turns while the server runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields
from typing import Any

LISTEN, SPEAK, END, FAIL = "L", "S", "E", "F"
KEPT_UNITS = 400


@dataclass
class Knobs:
    """What a test may turn.

    :param script: ``pattern:LLSSE``, one letter per unit and over again, counted per session: listen, speak,
        speak and end the turn, or F, fail in a later stage; ``reactive:K``, listen until speech was followed
        by silence, then speak K units and end; ``listen``
    :param speech_ms: of audio per speaking unit, in ``chunks`` deltas
    :param think_ms: of the first stage per unit, ``chunk_ms`` of the last one per chunk
    :param text: spoken per unit; ``{n}`` counts the session's speaking units
    """

    script: str = "pattern:LLSSE"
    speech_ms: int = 1000
    chunks: int = 4
    think_ms: float = 30.0
    chunk_ms: float = 30.0
    text: str = "Scripted speech, unit {n}. "

    def turn(self, **changes: Any) -> None:
        """Raises ``KeyError`` for a knob there isn't."""
        kinds = {knob.name: type(knob.default) for knob in fields(self)}
        for name, value in changes.items():
            setattr(self, name, kinds[name](value))


@dataclass(frozen=True)
class Unit:
    """One unit as the first stage got it. ``frames``: pictures with it."""

    session: str
    samples: int
    rms: float
    is_speech: bool
    force_listen: bool
    frames: int
    final: bool


@dataclass
class Script:
    """Decides per session; remembers what was heard, for tests to read."""

    knobs: Knobs
    units: list[dict[str, Any]] = field(default_factory=list)
    heard: int = 0
    _count: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _speech: set[str] = field(default_factory=set)
    _left: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _spoken: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def decide(self, unit: Unit) -> str:
        """The letter for ``unit``. One that must be listened to does not move the pattern on."""
        letter = LISTEN if unit.force_listen else self._next(unit)
        self.heard += 1
        self.units.append({**asdict(unit), "decision": letter})
        del self.units[:-KEPT_UNITS]
        return letter

    def words(self, session: str) -> tuple[int, str]:
        """Number and text of the session's next speaking unit."""
        number = self._spoken[session]
        self._spoken[session] += 1
        return number, self.knobs.text.format(n=number)

    def _next(self, unit: Unit) -> str:
        kind, _, argument = self.knobs.script.partition(":")
        if kind == "pattern":
            number = self._count[unit.session]
            self._count[unit.session] += 1
            return argument[number % len(argument)]
        if kind == "reactive":
            return self._react(unit, int(argument))
        if kind == "listen":
            return LISTEN
        raise ValueError(f"unknown script {self.knobs.script!r}")

    def _react(self, unit: Unit, units: int) -> str:
        session = unit.session
        if self._left[session] == 0:
            if unit.is_speech:
                self._speech.add(session)
            elif session in self._speech:
                self._speech.discard(session)
                self._left[session] = units
        if self._left[session] == 0:
            return LISTEN
        self._left[session] -= 1
        return SPEAK if self._left[session] else END
