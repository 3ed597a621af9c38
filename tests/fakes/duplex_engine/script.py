"""What the scripted model does with each unit, and what it notes down of it: plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]


@dataclass
class Unit:
    """One unit as the model got it.

    :param number: from 0, over the whole session
    :param pcm: float32 at the profile's rate; empty for frames alone
    :param silence: the engine fed it itself while a response was open
    :param final: closed by a commit, its end padded with zeros
    :param creates: a turn's commit asked for a response
    :param prefix: an earlier unit of a committed turn, listened to only
    :param event_ids: of the appends it was made of
    :param at: engine's seconds; ``end_ms`` of the stream as the last append stated it
    """

    session_id: str
    number: int
    pcm: Samples
    frames: tuple[bytes, ...] = ()
    silence: bool = False
    final: bool = False
    creates: bool = False
    prefix: bool = False
    force_listen: bool = False
    is_speech: bool = False
    event_ids: tuple[str, ...] = ()
    end_ms: int | None = None
    text: str = ""
    at: float = 0.0
    epoch: int = 0
    decision: str = ""

    @property
    def samples(self) -> int:
        return int(self.pcm.size)

    @property
    def modality(self) -> str:
        if self.frames:
            return "omni" if self.samples else "vision"
        return "audio" if self.samples else "text"


class Kind(StrEnum):
    LISTEN = "L"
    SPEAK = "S"
    FAIL = "F"
    """The stage dies: an error, then the session expires."""
    REFUSE = "A"
    """The append is refused with its event id; the session goes on."""
    TOOL = "T"
    NOTHING = "N"
    """The turn ends without output."""


@dataclass(frozen=True)
class Act:
    """What the model makes of one unit.

    :param end: the turn is over with it
    :param text: what is said; ``{n}`` the unit's number. ``heard``: what it understood of the user
    :param audio_ms: of speech, in ``chunks`` deltas; 0: text alone
    :param think_ms: before the first chunk; ``chunk_ms`` before each further one; ``None``: see ``Faults``
    :param marks: text marks come with the audio
    """

    kind: Kind
    end: bool = False
    text: str = "unit {n}. "
    heard: str | None = None
    audio_ms: int | None = None
    chunks: int = 4
    think_ms: float | None = None
    chunk_ms: float | None = None
    marks: bool = True
    tool: str = "look_up"
    arguments: str = "{}"
    amplitude: float = 0.3


LISTEN = Act(Kind.LISTEN)
_LETTERS = {
    "L": LISTEN,
    "S": Act(Kind.SPEAK),
    "E": Act(Kind.SPEAK, end=True),
    "F": Act(Kind.FAIL),
    "A": Act(Kind.REFUSE),
    "T": Act(Kind.TOOL),
    "N": Act(Kind.NOTHING),
}


@dataclass
class _Reactive:
    """Listens until speech was heard and silence follows; then speaks for ``units`` units."""

    units: int
    heard: bool = False
    left: int = 0

    def __call__(self, unit: Unit) -> Act:
        if self.left:
            self.left -= 1
            return _LETTERS["S" if self.left else "E"]
        if unit.is_speech:
            self.heard = True
        elif self.heard:
            self.heard, self.left = False, self.units - 1
            return _LETTERS["S" if self.left else "E"]
        return LISTEN


Decide = Callable[[Unit], "Act | str"]
Script = str | Sequence["Act | str"] | Decide
"""``pattern:LLSE`` (a letter per unit, started over at the end), ``every:N`` (unit N, 2N ... ends a turn of
speech, the first of each N listens), ``reactive:K``, ``listen``; a sequence; or a callable."""


@dataclass
class Director:
    """A script at work in one session. A unit that must be listened to never moves it on."""

    script: Script
    _number: int = 0
    _reactive: _Reactive | None = field(default=None, init=False)

    def decide(self, unit: Unit) -> Act:
        if unit.force_listen or unit.prefix:
            return LISTEN
        act = self._next(unit)
        if isinstance(act, str):
            act = _LETTERS[act]
        return act

    def _next(self, unit: Unit) -> Act | str:
        number, self._number = self._number, self._number + 1
        if callable(self.script):
            return self.script(unit)
        if not isinstance(self.script, str):
            return self.script[number % len(self.script)]
        kind, _, argument = self.script.partition(":")
        if kind == "pattern":
            return argument[number % len(argument)]
        if kind == "every":
            period = max(2, int(argument))
            place = number % period
            return "L" if place == 0 else "E" if place == period - 1 else "S"
        if kind == "reactive":
            if self._reactive is None:
                self._reactive = _Reactive(max(1, int(argument or 2)))
            return self._reactive(unit)
        if kind == "listen":
            return LISTEN
        raise ValueError(f"no script is called {self.script!r}")


Voice = Callable[[Unit, int, int], Samples]
"""What a chunk of speech sounds like: (unit, number of the chunk in it, samples) to that many samples."""


def tone(milliseconds: float, rate_hz: int, frequency_hz: float, amplitude: float, start: int = 0) -> Samples:
    """A sine; ``start`` in samples keeps the phase over chunks."""
    count = round(milliseconds * rate_hz / 1000)
    phase = (start + np.arange(count)) * (2 * np.pi * frequency_hz / rate_hz)
    return np.asarray(amplitude * np.sin(phase), np.float32)
