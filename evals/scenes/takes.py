"""A stream with its questions: a scene, and one query after the other until its end.

Each query stands until the next replaces it, so that at every second it is known what may be said.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

import numpy as np

from evals.scenes.asks import Ask, ask
from evals.scenes.layout import make_scene
from evals.scenes.levels import LEVELS, WORDS, LevelName, Split
from evals.scenes.spec import Scene, shown

WATCH = ("alert", "every", "match", "leave", "tally")
"""Skills that wait for something."""
SEE = ("count", "look", "read", "translate", "still", "where", "move")
"""Skills that need the newest frames alone."""
MEMORY = ("first", "before", "prior", "colour", "when", "ago")
"""Skills that need what has been seen."""
HAND_OVER = ("delegate",)
SIGNS = ("read", "translate")
"""Of ``SEE``, those that need what is seldom there."""

_WATCH_S = (25, 70)
_ANSWER_S = (8, 14)
_TRIES = 6
_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Take:
    """:param asks: in order; each stands until the next, the last until the end"""

    scene: Scene
    split: Split
    level: LevelName
    seed: int
    asks: tuple[Ask, ...]


def make_take(
    seed: int,
    split: Split,
    level: LevelName,
    length_s: float,
    skills: Sequence[str],
    far_s: float = 0.0,
) -> Take:
    """A scene with questions of some skills. The same arguments give the same take, on any machine.

    Where none of them fits, an alert is asked for: it always does.

    :param far_s: questions of memory are asked when what they are about has been gone for so long, where it
        is about something that was seen
    """
    scene = make_scene(seed, split, level, length_s)
    told = f"{split}/{level}/{length_s:g}/{','.join(skills)}/{far_s:g}"
    rng = np.random.default_rng([seed, 1, zlib.crc32(told.encode())])
    plan = _Plan(scene, rng, tuple(skills), LEVELS[level].wordings, far_s)
    at_s = float(rng.integers(5, 9))
    while at_s <= length_s - _ANSWER_S[0]:
        at_s = plan.ask_next(at_s)
    return Take(scene, split, level, seed, tuple(plan.asks))


@dataclass(slots=True)
class _Plan:
    """The questions of a take, as they are thought of."""

    scene: Scene
    rng: np.random.Generator
    skills: tuple[str, ...]
    wordings: int
    far_s: float
    asks: list[Ask] = field(default_factory=list)

    def ask_next(self, at_s: float) -> float:
        """The skill that was asked for least, of those that fit; never the same words twice in a row.

        :returns: until when the question stands
        """
        usable = [skill for skill in self.skills if skill not in MEMORY or at_s >= self.far_s]
        drawn = [usable[index] for index in self.rng.permutation(len(usable))]
        used = [asked.skill for asked in self.asks]
        tries = [skill for skill in sorted(drawn, key=used.count) for _ in range(_TRIES)]
        # There are always two things at least that do not come: in the end an alert fits.
        for skill in chain(tries, repeat("alert")):
            asked = ask(
                self.scene, skill, at_s, self._until(at_s, skill, not usable), self.rng, self.wordings
            )
            if asked is not None and self._suits(asked):
                self.asks.append(asked)
                return asked.until_s
        raise AssertionError("unreachable")

    def _suits(self, asked: Ask) -> bool:
        if self.asks and asked.text == self.asks[-1].text:
            return False
        seen = [right.evidence for right in asked.rights if asked.skill in MEMORY]
        return all(evidence is None or asked.at_s - evidence[1] >= self.far_s for evidence in seen)

    def _until(self, at_s: float, skill: str, only_memory: bool) -> float:
        """A while; where signs are asked about, until one is there. A rest too short for a question is added.

        :param only_memory: nothing else is to be asked, and it is too early for it
        """
        # An alert that only fills a gap is a short one.
        low, high = _WATCH_S if skill in WATCH and skill in self.skills else _ANSWER_S
        ends = [at_s + float(step) for step in self.rng.integers(low, high + 1, _LOOKS)]
        until_s = ends[0]
        if set(self.skills) & set(SIGNS):
            until_s = next((end for end in ends if self._shows_sign(end)), until_s)
        if only_memory:
            until_s = max(until_s, float(np.ceil(self.far_s)))
        return until_s if until_s <= self.scene.length_s - _ANSWER_S[0] else self.scene.length_s

    def _shows_sign(self, t_s: float) -> bool:
        """One that can be asked about: to be translated, a foreign one."""
        foreign = [WORDS[sign.word][0] != "en" for sign in self.scene.signs if shown(sign.spans, t_s)]
        return bool(foreign) and ("read" in self.skills or any(foreign))
