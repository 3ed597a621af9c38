"""``vigil eval scenes``: writes a data set of synthetic streams, from seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evals.scenes.levels import LevelName, Split
from evals.scenes.wordings import WORDINGS

_SKILLS = ",".join(WORDINGS)


def scenes(
    out: Annotated[Path, typer.Argument(help="Folder to write to: clips.jsonl, and what is asked for.")],
    fixed: Annotated[
        Literal["small", "scoreboard"] | None,
        typer.Option("--set", help="A fixed set of held-out scenes, in place of the options below."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first clip; those of the others follow.")] = 1,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Clips.")] = 10,
    minutes: Annotated[float, typer.Option(min=0.5, max=240, help="Length of each clip.")] = 4.0,
    level: Annotated[LevelName, typer.Option(help="How much is in the pictures.")] = "plain",
    split: Annotated[
        Split,
        typer.Option(help="They share no set of things, no timeline and no place."),
    ] = "held_out",
    skills: Annotated[str, typer.Option(help="What is asked, as far as it fits: some of these.")] = _SKILLS,
    chunk_s: Annotated[
        float, typer.Option(min=5, help="Length of a memory chunk in the runs that are meant.")
    ] = 20.0,
    reach: Annotated[
        int, typer.Option(min=0, max=20, help="Memory is asked across so many ends of chunks, or more.")
    ] = 2,
    video: Annotated[bool, typer.Option("--video", help="Write each clip's video too.")] = False,
    side: Annotated[int, typer.Option(min=64, max=2160, help="Width and height of videos.")] = 448,
    speech: Annotated[bool, typer.Option("--speech", help="Have the questions spoken.")] = False,
    barge_in: Annotated[
        bool,
        typer.Option("--barge-in", help="With --speech: have answers spoken over, half to stop them."),
    ] = False,
) -> None:
    """Write synthetic annotated streams: scenes with questions, and what is right to say when."""
    from bridges.speech import SpeechError
    from evals.scenes.datasets import SETS, Recipe
    from evals.scenes.files import CLIPS, Written, write

    if barge_in and not speech:
        raise typer.BadParameter("goes with --speech", param_hint="--barge-in")
    if (out / CLIPS).exists():
        raise typer.BadParameter(f"{out} holds scenes already; name another folder", param_hint="OUT")
    asked = tuple(skill.strip() for skill in skills.split(",") if skill.strip())
    recipes = (
        SETS[fixed]
        if fixed
        else (Recipe("scene", seed, count, minutes, asked, split, level, chunk_s, reach),)
    )
    try:
        clips = write(out, recipes, Written((side, side) if video else None, speech, barge_in))
    except (ValueError, SpeechError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    except OSError as full:
        raise typer.BadParameter(f"can't write to {out}: {full.strerror}") from full
    slots = sum(len(clip.slots) for clip in clips)
    hours = sum(clip.duration_s or 0 for clip in clips) / 3600
    typer.echo(f"{out / CLIPS}: {len(clips)} clips, {hours:.2f} hours, {slots} answers due")


def mount(app: typer.Typer) -> None:
    app.command()(scenes)
