"""``vigil eval scenes``: writes a data set of synthetic streams, from seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from bridges.speech import SpeechError
from bridges.system_voice import SystemVoice
from evals.readers.clip import Clip
from evals.readers.jsonl import write_clips
from evals.scenes.asks import SKILLS
from evals.scenes.datasets import SETS, Recipe
from evals.scenes.frames import scene_of
from evals.scenes.speech import RATE_HZ, Samples, speak_clip, write_track
from evals.scenes.video import write_video

CLIPS, VIDEOS, SOUND = "clips.jsonl", "videos", "sound"
_PLAIN_SKILLS = tuple(skill for skill in SKILLS if skill != "move")


@dataclass(frozen=True, slots=True)
class Written:
    """:param size: width and height of videos; ``None``: none is written
    :param speech: whether the questions are spoken: in the video, or else in a file beside it
    """

    size: tuple[int, int] | None
    speech: bool


def scenes(
    out: Annotated[Path, typer.Argument(help="Folder to write to: clips.jsonl, and what is asked for.")],
    fixed: Annotated[
        str | None,
        typer.Option("--set", help=f"A fixed set instead of the options below: {', '.join(SETS)}."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first clip; those of the others follow.")] = 1,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Clips.")] = 10,
    minutes: Annotated[float, typer.Option(min=0.5, max=240, help="Length of each clip.")] = 4.0,
    level: Annotated[
        Literal["plain", "varied", "hard"], typer.Option(help="How much is in the pictures.")
    ] = "plain",
    split: Annotated[
        Literal["held_out", "train"],
        typer.Option(help="They share no set of things, no timeline and no place."),
    ] = "held_out",
    skills: Annotated[
        str, typer.Option(help=f"What is asked, with commas between: {', '.join(SKILLS)}.")
    ] = ",".join(_PLAIN_SKILLS),
    chunk_s: Annotated[
        float, typer.Option(min=5, help="A memory chunk of the runs that are meant; memory reaches two back.")
    ] = 30.0,
    video: Annotated[bool, typer.Option("--video", help="Write each clip's video too.")] = False,
    side: Annotated[int, typer.Option(min=64, max=2160, help="Width and height of videos.")] = 448,
    speech: Annotated[bool, typer.Option("--speech", help="Have the questions spoken.")] = False,
) -> None:
    """Write synthetic annotated streams: scenes with questions, and what is right to say when."""
    if fixed is not None and fixed not in SETS:
        raise typer.BadParameter(f"no set {fixed!r}; there are {', '.join(SETS)}", param_hint="--set")
    asked = tuple(skill.strip() for skill in skills.split(",") if skill.strip())
    recipes = SETS[fixed] if fixed else (Recipe("scene", seed, count, minutes, asked, split, level, chunk_s),)
    try:
        clips = write(out, recipes, Written((side, side) if video else None, speech))
    except (ValueError, SpeechError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    slots = sum(len(clip.slots) for clip in clips)
    hours = sum(clip.duration_s or 0 for clip in clips) / 3600
    typer.echo(f"{out / CLIPS}: {len(clips)} clips, {hours:.2f} hours, {slots} answers due")


def write(out: Path, recipes: Sequence[Recipe], wanted: Written) -> list[Clip]:
    """The clips of some recipes, and their videos and sound in ``videos/`` and ``sound/``. Blocks.

    :raises ValueError: a recipe that can't be followed
    :raises SpeechError: speech is wanted, and there is no program for it, or it fails
    """
    out.mkdir(parents=True, exist_ok=True)
    clips = [_written(out, clip, wanted) for recipe in recipes for clip in recipe.clips()]
    write_clips(out / CLIPS, clips)
    return clips


def mount(app: typer.Typer) -> None:
    app.command()(scenes)


def _written(out: Path, clip: Clip, wanted: Written) -> Clip:
    track: Samples | None = None
    if wanted.speech:
        clip, track = asyncio.run(_spoken(clip))
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


async def _spoken(clip: Clip) -> tuple[Clip, Samples]:
    async with aclosing(SystemVoice()) as voice:
        return await speak_clip(clip, voice)
