"""Who asks for clips too short for memory is told a length that is long enough."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from evals.scenes.datasets import Recipe
from evals.scenes.takes import MEMORY


@pytest.mark.parametrize(("chunk_s", "reach"), [(20.0, 2), (7.0, 1), (22.0, 2), (61.0, 3)])
def test_the_length_that_is_named_is_long_enough(chunk_s: float, reach: int) -> None:
    short = Recipe("short", 1, 1, 0.1, (sorted(MEMORY)[0],), chunk_s=chunk_s, reach=reach)
    with pytest.raises(ValueError, match="too short") as refused:
        next(short.takes())
    named = re.search(r"that takes ([\d.]+);", str(refused.value))
    assert named is not None
    try:
        next(replace(short, minutes=float(named[1])).takes())
    except ValueError as other:  # a scene that has nothing to ask is another matter
        assert "too short" not in str(other)
