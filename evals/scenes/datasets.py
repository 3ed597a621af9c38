"""Data sets by recipe: the same clips from the same recipe, on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from evals.readers.clip import Clip
from evals.scenes.asks import SKILLS
from evals.scenes.clips import clip_of
from evals.scenes.levels import LevelName, Split
from evals.scenes.takes import MEMORY, Take, make_take

_SEEDS = 20
"""So many seeds are tried for each clip that is wanted."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """:param name: part of the clips' ids
    :param seed: of the first clip; those of the others follow, without those where nothing of it can be asked
    :param minutes: of each clip
    :param skills: what is asked; where none of them fits, an alert is
    :param chunk_s: length of a memory chunk in the runs that are meant
    :param reach: memory is asked across so many ends of chunks, or more
    """

    name: str
    seed: int
    count: int
    minutes: float
    skills: tuple[str, ...]
    split: Split = "held_out"
    level: LevelName = "plain"
    chunk_s: float = 20.0
    reach: int = 2

    def takes(self) -> Iterator[Take]:
        """:raises ValueError: no such skill, clips too short to ask of memory, too few chances to ask"""
        unknown = [skill for skill in self.skills if skill not in SKILLS]
        if unknown or not self.skills:
            raise ValueError(f"no skill {', '.join(unknown)!r}; there are {', '.join(SKILLS)}")
        far_s = self.reach * self.chunk_s if set(self.skills) & set(MEMORY) else 0.0
        if far_s and 60 * self.minutes < far_s + 30:
            raise ValueError(
                f"{self.minutes:g} minutes are too short to ask of what went {far_s:g} s before: "
                f"that takes {math.ceil((far_s + 30) / 6) / 10:g}; "
                "make clips longer, chunks shorter, or the reach less"
            )
        found = 0
        for seed in range(self.seed, self.seed + _SEEDS * self.count):
            take = make_take(seed, self.split, self.level, 60 * self.minutes, self.skills, far_s)
            if any(asked.skill in self.skills for asked in take.asks):
                yield take
                found += 1
            if found == self.count:
                return
        raise ValueError(f"{', '.join(self.skills)}: hardly ever to be asked about at level {self.level}")

    def clips(self) -> Iterator[Clip]:
        """Their scenes are in them; no video."""
        for take in self.takes():
            yield clip_of(take, f"{self.name}-{take.scene.name}", self.chunk_s)


_WATCH = ("alert", "every", "leave")
_SEE = ("count", "look", "still")
_SIGNS = ("read", "translate")
_MEMORY = ("first", "before", "colour", "when")
_HAND_OVER = ("delegate", "alert", "count")

SETS: dict[str, tuple[Recipe, ...]] = {
    "small": (
        Recipe("watch", 7000, 3, 2.0, _WATCH),
        Recipe("see", 7100, 2, 2.0, _SEE + _SIGNS),
        Recipe("memory", 7200, 2, 3.0, _MEMORY),
        Recipe("hand-over", 7300, 1, 2.0, ("delegate", "count")),
    ),
    "scoreboard": (
        Recipe("alert", 8000, 30, 5.0, ("alert",)),
        Recipe("watch", 8100, 10, 5.0, _WATCH),
        Recipe("see", 8200, 10, 4.0, _SEE),
        Recipe("signs", 8500, 12, 4.0, _SIGNS),
        Recipe("memory", 8300, 16, 4.0, _MEMORY),
        Recipe("memory-near", 8600, 8, 3.0, _MEMORY, reach=1),
        Recipe("hand-over", 8400, 18, 3.0, _HAND_OVER),
    ),
}
"""Fixed sets of held-out scenes: ``small`` for a quick look, ``scoreboard`` for narrow intervals."""
