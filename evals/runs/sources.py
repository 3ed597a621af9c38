"""What a clip shows: its video, or the frames of its scene."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from evals.readers.clip import Clip
from evals.replay.drive import Frame, Sampling
from evals.replay.options import ReplayError
from evals.replay.source import Source, Video
from evals.scenes.frames import frames, scene_of
from orchestrator.exits import Exit

NO_VIDEO = "the video {} was not found"


def source_of(clip: Clip, videos: Mapping[str, Path]) -> Source:
    """Raises ``ReplayError``: there is nothing to play."""
    if (path := videos.get(clip.id)) is not None:
        return Video(str(path))
    if clip.scene is None:
        raise ReplayError(Exit.NO_SOURCE, "no_video", NO_VIDEO.format(clip.video))
    try:
        return SceneFrames(clip.id, clip.scene)
    except ValueError as wrong:
        raise ReplayError(Exit.NO_SOURCE, "bad_scene", str(wrong)) from wrong


class SceneFrames:
    """A ``Source`` that draws a scene as its frames are asked for, square and as large as the model takes.

    PNG: so the model is shown what the scene says to the pixel. Raises ``ValueError`` where it is no scene.
    """

    live = False

    def __init__(self, name: str, record: Mapping[str, Any]) -> None:
        self._name = name
        self._record = record
        self._length_s = scene_of(record).length_s
        self._side = 0

    def info(self) -> Mapping[str, Any]:
        facts = {"name": self._name, "kind": "scene", "duration_s": self._length_s}
        return facts | ({"width": self._side, "height": self._side} if self._side else {})

    def warnings(self) -> Sequence[str]:
        return ()

    def dropped(self) -> int:
        return 0

    def expected(self, sampling: Sampling) -> int | None:
        return -(-round(self._length_s * 1000) // sampling.period_ms)

    async def frames(self, sampling: Sampling) -> AsyncGenerator[Frame, None]:
        self._side = largest_side(sampling)
        drawn = self._drawn(sampling)
        while (frame := await asyncio.to_thread(next, drawn, None)) is not None:
            yield frame

    def _drawn(self, sampling: Sampling) -> Iterator[Frame]:
        for media_time_ms, picture in frames(self._record, sampling.period_ms, self._side):
            out = io.BytesIO()
            Image.fromarray(picture).save(out, "PNG")
            yield Frame(media_time_ms, out.getvalue())


def largest_side(sampling: Sampling) -> int:
    """Of a square picture that the model takes as it is, in pixels."""
    bounds = sampling.bounds
    side = math.isqrt(bounds.max_pixels)
    return max(side - side % bounds.multiple, bounds.multiple)
