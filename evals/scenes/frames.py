"""The frames of a clip that is a scene: what a run shows to a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evals.scenes.render import Picture, render
from evals.scenes.spec import Scene, scene_from_json

GENERATOR = 1
"""Raised when an old record would no longer be drawn as it was."""


def scene_record(scene: Scene) -> dict[str, Any]:
    """What a clip keeps of its scene: all of it, so that a later generator still draws the same."""
    return {"generator": GENERATOR, "spec": json.loads(scene.to_json())}


def scene_of(record: Mapping[str, Any]) -> Scene:
    """The scene of a clip's ``scene``.

    :raises ValueError: it was made by another generator, or is none
    """
    if record.get("generator") != GENERATOR:
        raise ValueError(f"a scene of generator {record.get('generator')!r}, not {GENERATOR}")
    try:
        return scene_from_json(json.dumps(record["spec"]))
    except (KeyError, TypeError, IndexError) as wrong:
        raise ValueError(f"no scene: {wrong!r}") from wrong


def frames(
    record: Mapping[str, Any], period_ms: int, size: int | tuple[int, int]
) -> Iterator[tuple[int, Picture]]:
    """One frame a period: its media time in ms, and ``height x width x 3`` of RGB.

    The camera's own rate counts: what is shown is the last frame it took.

    :param size: the side of a square, or ``(width, height)``, in pixels
    :raises ValueError: the record is no scene
    """
    scene = scene_of(record)
    taken = scene.frame_times()
    last = 0
    for index in range(-(-round(scene.length_s * 1000) // period_ms)):
        media_ms = index * period_ms
        while last + 1 < len(taken) and taken[last + 1] * 1000 <= media_ms + 1e-6:
            last += 1
        yield media_ms, render(scene, taken[last], size)
