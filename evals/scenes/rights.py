"""What is right to say, and where in a scene something is asked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from evals.scenes.spec import COLOURS, SHAPES, Kind, Scene, Span, Thing
from evals.scenes.truth import Item, first_frame, last_frame, order, sightings, visible

ANSWER_S = 5.0
"""A reply is late after so many seconds."""

_FEWEST = 4
"""Colours and shapes that every level has."""

_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that is right to say, and when.

    :param kind: ``alert``, ``repeat``, ``answer``, ``count`` or ``delegate``
    :param reply: word for word, for who must learn to say it; others are judged by ``accepted``
    :param judging: how ``accepted`` is held against a reply: ``contains`` (whole words), ``number``,
        ``exact``, ``yes_no``, ``judge`` (by meaning) or ``any``
    :param evidence: from when the answer could be known, until when it could be seen
    """

    kind: str
    start_s: float
    end_s: float
    reply: str
    accepted: tuple[str, ...]
    judging: str = "contains"
    evidence: Span | None = None

    @property
    def frame(self) -> int:
        """The first frame at which it can be said."""
        return first_frame(self.start_s)


Asked = tuple[Mapping[str, str], Sequence[Right]]
"""What a wording is about, and what is right to say."""


@dataclass(frozen=True, slots=True)
class At:
    """Where in a scene something is asked: it is known what the frames up to ``now`` have shown."""

    scene: Scene
    at_s: float
    until_s: float
    rng: np.random.Generator

    @property
    def now(self) -> int:
        """The frame that the question comes with."""
        return first_frame(self.at_s)

    def pick(self, options: Sequence[_T]) -> _T | None:
        return options[int(self.rng.integers(len(options)))] if options else None

    def seen(self) -> list[tuple[int, int, Item]]:
        """First frame, last frame so far and item of what has been seen, in order."""
        return sightings(self.scene, 0, self.now + 1)

    def kinds_seen(self) -> list[Kind]:
        return unique(item.kind for _, _, item in self.seen() if isinstance(item, Thing))

    def kinds(self) -> list[Kind]:
        """Kinds of the whole scene."""
        return unique(thing.kind for thing in self.scene.things)

    def strangers(self) -> list[Kind]:
        """Kinds that have not been seen: those of the scene, and mixtures of them; always two or more."""
        seen, kinds = self.kinds_seen(), self.kinds()
        mixed = _mixed(unique(k.colour for k in kinds), unique(k.shape for k in kinds))
        if len(set(mixed) - set(kinds)) < 2:
            colours, shapes = list(COLOURS), list(SHAPES)
            most = max([_FEWEST, *(colours.index(k.colour) + 1 for k in kinds)])
            widest = max([_FEWEST, *(shapes.index(k.shape) + 1 for k in kinds)])
            mixed = _mixed(colours[:most], shapes[:widest])
        return [kind for kind in unique([*kinds, *mixed]) if kind not in seen]

    def steady(self) -> bool:
        """Nothing comes or goes just as it is asked."""
        return (
            visible(self.scene, self.now - 1)
            == visible(self.scene, self.now)
            == visible(self.scene, self.now + 1)
        )

    def coming(self, kind: Kind) -> list[tuple[float, Thing, Span]]:
        """From when each thing of a kind can be told of while the question stands; at once if it is there."""
        return self._arrivals([thing for thing in self.scene.things if thing.kind == kind])

    def coming_in(self, colour: str) -> list[tuple[float, Thing, Span]]:
        """The same of all things of a colour."""
        return self._arrivals([thing for thing in self.scene.things if thing.kind.colour == colour])

    def _arrivals(self, things: Sequence[Thing]) -> list[tuple[float, Thing, Span]]:
        found = [
            (max(start, self.at_s), thing, (start, end))
            for thing in things
            for start, end in thing.spans
            if first_frame(max(start, self.at_s)) <= last_frame(min(end, self.until_s))
        ]
        return sorted(found, key=lambda one: (first_frame(one[0]), order(one[1])))

    def answer(
        self, reply: str, accepted: Sequence[str], judging: str = "contains", evidence: Span | None = None
    ) -> list[Right]:
        """One reply, right away."""
        return [Right("answer", self.at_s, self._end(self.at_s), reply, tuple(accepted), judging, evidence)]

    def moment(self, kind: str, start_s: float, reply: str, accepted: Sequence[str], evidence: Span) -> Right:
        return Right(kind, start_s, self._end(start_s), reply, tuple(accepted), "contains", evidence)

    def _end(self, start_s: float) -> float:
        return min(start_s + ANSWER_S, self.until_s)


def _mixed(colours: Sequence[str], shapes: Sequence[str]) -> list[Kind]:
    return [Kind(colour, shape) for colour in colours for shape in shapes]


def unique(items: Iterable[_H]) -> list[_H]:
    """Each once, in order."""
    return list(dict.fromkeys(items))
