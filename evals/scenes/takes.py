"""A stream with its questions: a scene, and one query after the other until its end.

Each query stands until the next replaces it, so that at every second it is known what may be said.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.scenes.asks import Ask, ask
from evals.scenes.layout import make_scene
from evals.scenes.levels import LEVELS, LevelName, Split
from evals.scenes.spec import Scene

WATCH = ("alert", "every", "match", "leave", "tally")
"""Skills that wait for something."""
SEE = ("count", "look", "read", "translate", "still", "where", "move")
"""Skills that need the newest frames alone."""
MEMORY = ("first", "before", "prior", "colour", "when", "ago")
"""Skills that need what has been seen."""
HAND_OVER = ("delegate",)

_WATCH_S = (25, 70)
_ANSWER_S = (8, 14)
_TRIES = 6


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
    recalled = [skill for skill in skills if skill in MEMORY]
    others = [skill for skill in skills if skill not in MEMORY]
    asks: list[Ask] = []
    at_s = float(rng.integers(5, 9))
    while at_s <= length_s - _ANSWER_S[0]:
        ready = bool(recalled) and at_s >= far_s
        wait_s = far_s - at_s if recalled and not others and not ready else 0.0
        usable = [*others, *(recalled if ready else ())]
        asks.append(_next(scene, rng, asks, at_s, usable, LEVELS[level].wordings, far_s, wait_s))
        at_s = asks[-1].until_s
    return Take(scene, split, level, seed, tuple(asks))


def _next(
    scene: Scene,
    rng: np.random.Generator,
    before: Sequence[Ask],
    at_s: float,
    skills: Sequence[str],
    wordings: int,
    far_s: float,
    wait_s: float,
) -> Ask:
    """The skill that was asked for least, of those that fit; never the same words twice in a row."""
    drawn = [skills[index] for index in rng.permutation(len(skills))]
    used = [asked.skill for asked in before]
    for skill in sorted(drawn, key=used.count):
        for _ in range(_TRIES):
            asked = ask(scene, skill, at_s, _until(scene, rng, at_s, skill, 0.0), rng, wordings)
            if asked is not None and _far(asked, far_s) and _differs(asked, before):
                return asked
    while True:  # there are always two things at least that do not come
        asked = ask(scene, "alert", at_s, _until(scene, rng, at_s, "alert", wait_s), rng, wordings)
        if asked is not None and _differs(asked, before):
            return asked


def _differs(asked: Ask, before: Sequence[Ask]) -> bool:
    return not before or asked.text != before[-1].text


def _far(asked: Ask, far_s: float) -> bool:
    if asked.skill not in MEMORY:
        return True
    return all(right.evidence is None or asked.at_s - right.evidence[1] >= far_s for right in asked.rights)


def _until(scene: Scene, rng: np.random.Generator, at_s: float, skill: str, wait_s: float) -> float:
    """A query that would leave too little for another stands to the end."""
    low, high = _WATCH_S if skill in WATCH else _ANSWER_S
    until_s = at_s + max(float(rng.integers(low, high + 1)), float(np.ceil(wait_s)))
    return until_s if until_s <= scene.length_s - _ANSWER_S[0] else scene.length_s
