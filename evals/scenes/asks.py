"""Questions about a scene, and what would be right to say when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evals.scenes.rights import At, Right
from evals.scenes.skills import ASKED
from evals.scenes.spec import Scene
from evals.scenes.wordings import WORDINGS

SKILLS = tuple(WORDINGS)


@dataclass(frozen=True, slots=True)
class Ask:
    """A query that stands from ``at_s`` until ``until_s``; all is silence but for ``rights``."""

    skill: str
    text: str
    at_s: float
    until_s: float
    rights: tuple[Right, ...]

    @property
    def replies(self) -> list[tuple[int, str]]:
        """``(first frame that shows why, words)``; two at one frame are said as one."""
        told: dict[int, list[str]] = {}
        for right in self.rights:
            told.setdefault(right.frame, []).append(right.reply)
        return [(frame, " ".join(words)) for frame, words in sorted(told.items())]


def ask(
    scene: Scene, skill: str, at_s: float, until_s: float, rng: np.random.Generator, wordings: int = 1
) -> Ask | None:
    """A question of a skill, asked at ``at_s``, standing until ``until_s``; ``None`` where none fits there.

    What it is about is drawn; half of what can be answered by yes or no is a no. Nothing that happens at or
    after ``until_s`` counts.

    :param wordings: how many of a skill's wordings may be used
    :raises KeyError: no such skill
    """
    asked = ASKED[skill](At(scene, at_s, min(until_s, scene.length_s), rng))
    if asked is None:
        return None
    words, rights = asked
    text = WORDINGS[skill][int(rng.integers(min(wordings, len(WORDINGS[skill]))))].format(**words)
    return Ask(skill, text, at_s, until_s, tuple(rights))
