"""Scenes and takes for properties. A scene takes a while to draw, so few are, and kept."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import strategies as st

from evals.scenes.layout import make_scene
from evals.scenes.levels import LEVELS
from evals.scenes.spec import Scene

LENGTH_S = 120.0


@lru_cache(maxsize=256)
def scene(seed: int, split: str, level: str) -> Scene:
    return make_scene(seed, split, level, LENGTH_S)  # type: ignore[arg-type]


def scenes(level: str | None = None) -> st.SearchStrategy[Scene]:
    levels = st.just(level) if level else st.sampled_from(tuple(LEVELS))
    return st.builds(scene, st.integers(0, 19), st.sampled_from(("train", "held_out")), levels)
