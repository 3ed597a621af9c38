"""A data set of scenes as files: the clips, and where wanted their videos and their sound."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from bridges.system_voice import SystemVoice
from evals.readers.clip import Clip
from evals.readers.jsonl import write_clips
from evals.scenes.datasets import Recipe
from evals.scenes.frames import scene_of
from evals.scenes.speech import RATE_HZ, Samples, speak_clip, write_track
from evals.scenes.video import write_video

CLIPS, VIDEOS, SOUND = "clips.jsonl", "videos", "sound"


@dataclass(frozen=True, slots=True)
class Written:
    """:param size: width and height of videos; ``None``: none is written
    :param speech: whether the questions are spoken: in the video, or else in a file beside it
    :param over: whether somebody speaks over answers too
    """

    size: tuple[int, int] | None
    speech: bool
    over: bool = False


def write(out: Path, recipes: Sequence[Recipe], wanted: Written) -> list[Clip]:
    """The clips of some recipes, and their videos and sound in ``videos/`` and ``sound/``. Blocks.

    :raises ValueError: a recipe that can't be followed; nothing is written then
    :raises OSError: a file can't be written
    :raises SpeechError: speech is wanted, and there is no program for it, or it fails
    """
    thought = [clip for recipe in recipes for clip in recipe.clips()]
    out.mkdir(parents=True, exist_ok=True)
    clips = [_written(out, clip, wanted) for clip in thought]
    write_clips(out / CLIPS, clips)
    return clips


def _written(out: Path, clip: Clip, wanted: Written) -> Clip:
    track: Samples | None = None
    if wanted.speech:
        clip, track = asyncio.run(_spoken(clip, wanted.over))
    if wanted.size is not None and clip.scene is not None:
        name = f"{VIDEOS}/{clip.id}.mp4"
        (out / VIDEOS).mkdir(exist_ok=True)
        write_video(out / name, scene_of(clip.scene), wanted.size, track, RATE_HZ)
        return clip.model_copy(update={"video": name})
    if track is not None:
        name = f"{SOUND}/{clip.id}.wav"
        (out / SOUND).mkdir(exist_ok=True)
        write_track(out / name, track)
        return clip.model_copy(update={"audio": name})
    return clip


async def _spoken(clip: Clip, over: bool) -> tuple[Clip, Samples]:
    async with aclosing(SystemVoice()) as voice:
        return await speak_clip(clip, voice, over=over)
