"""``vigil eval``: what recorded runs were worth. Heavy imports wait until a command runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evals.runs.command import mount as mount_runs
from evals.scenes.command import mount as mount_scenes
from evals.scoring.tables import Form
from evals.told import faults_told
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from evals.scoring.folder import Run

app = typer.Typer(
    name="eval",
    help="Find out how good a model, a prompt pack or a memory setting is.",
    no_args_is_help=True,
    add_completion=False,
)

FormOption = Annotated[
    Form, typer.Option("--format", help="text and markdown are tables; json is everything.")
]


@app.callback()
def evaluation() -> None:
    """Find out how good a model, a prompt pack or a memory setting is."""


@app.command()
def score(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run, or of a vigil replay.")],
    judge: Annotated[
        str | None, typer.Option(metavar="URL", help="Chat endpoint that judges free answers.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(metavar="NAME", help="Model of --judge.")] = None,
    judge_temperature: Annotated[
        float, typer.Option(min=0.0, max=2.0, help="Its temperature; 0 is as repeatable as it can be.")
    ] = 0.0,
    judge_key: Annotated[str | None, typer.Option(envvar="VIGIL_JUDGE_KEY", help="Key of --judge.")] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where verdicts are remembered; default: judge.jsonl in DIR."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a single vigil replay: its clip in Vigil's JSONL; it is kept."),
    ] = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Score a run from what it wrote: no engine is needed, and a run can be scored again at any time.

    Writes scores.json into DIR and prints its tables. Answers that only a language model can judge are judged
    by --judge, each once; without it by the verdicts that are remembered, and the others count as unjudged.

    Exit codes: 0 scored, 1 the judge failed on some answers (they count as unjudged), 2 wrong flags, no run.
    """
    if (judge is None) != (judge_model is None):
        raise typer.BadParameter("--judge and --judge-model go together", param_hint="--judge")
    from evals.scoring.folder import SCORES, VERDICTS, UnusableRun, keep_truth, read_run, write_scores
    from evals.scoring.judge import PROMPT, PROMPT_SHA256, VerdictFile, settings_in
    from evals.scoring.scores import scores_of
    from evals.scoring.tables import console_of, score_tables, show

    told: dict[str, Any] | None = None
    failed = 0
    with faults_told():
        if truth is not None:
            keep_truth(run, truth)
        found = read_run(run)
        if not found.clips:
            raise UnusableRun(f"{run} holds no clips")
        file = VerdictFile(verdicts or run / VERDICTS)
        if judge is not None and judge_model is not None:
            told = asyncio.run(_judge(found, judge, judge_model, judge_temperature, judge_key, file))
            failed = sum(told["failed"].values())
        elif (settings := file.settings()) is not None:
            told = settings
        known = file.verdicts(settings_in(told)) if told is not None else {}
        if told is not None and told["prompt_sha256"] == PROMPT_SHA256:
            told["prompt"] = PROMPT
        scores = scores_of(found, known, told)
        write_scores(run, scores)
    if form is Form.JSON:
        typer.echo((run / SCORES).read_bytes(), nl=False)
    else:
        console = console_of()
        show(score_tables(scores), form, console)
        _summary(scores, console)
    raise typer.Exit(Exit.FAILED if failed else Exit.OK)


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="A B [C ...]", help="Scored runs; the others are held against A.")
    ],
    form: FormOption = Form.TEXT,
) -> None:
    """Hold runs against each other, paired by clip and by slot, with intervals of the differences.

    Shows an ablation table of the settings that differ, every measure with its difference, and the slots that
    were won and lost. Only clips that all runs watched to the end, with one truth, are compared.

    Exit codes: 0 compared, 2 a run is not scored or they share no clip.
    """
    from evals.scoring.compare import compare as held
    from evals.scoring.compare import tables_of
    from evals.scoring.folder import read_scores
    from evals.scoring.tables import console_of, show

    if len(runs) < 2:
        raise typer.BadParameter("at least two runs are compared", param_hint="A B [C ...]")
    if len(set(runs)) < len(runs):
        raise typer.BadParameter("a run is named twice", param_hint="A B [C ...]")
    with faults_told():
        comparison = held(_named(runs, [read_scores(path) for path in runs]))
    if form is Form.JSON:
        import orjson

        typer.echo(orjson.dumps(comparison, option=orjson.OPT_INDENT_2))
        return
    show(tables_of(comparison), form, console_of())
    if comparison["left_out"]:
        typer.echo(f"left out, as not every run has watched them to the end: {len(comparison['left_out'])}")


async def _judge(
    run: Run, url: str, model: str, temperature: float, key: str | None, file: Any
) -> dict[str, Any]:
    from evals.scoring.judge import chat_judge
    from evals.scoring.scores import cases_of

    judge = chat_judge(url, model, file, temperature=temperature, api_key=key)
    try:
        judged = await judge.ask(cases_of(run))
    finally:
        await judge.aclose()
    counts = {"asked": judged.asked, "remembered": judged.remembered, "failed": dict(judged.failed)}
    return {**judge.settings, **counts}


def _named(paths: list[Path], scores: list[dict[str, Any]]) -> dict[str, Any]:
    """By folder name; by path where two folders have one name."""
    names = [path.resolve().name for path in paths]
    shown = [str(path) if names.count(name) > 1 else name for path, name in zip(paths, names, strict=True)]
    return dict(zip(shown, scores, strict=True))


def _summary(scores: dict[str, Any], console: Any) -> None:
    counts = scores["counts"]
    parts = [f"{count} {outcome}" for outcome, count in counts["outcomes"].items()]
    clips = f"{counts['clips']} clips ({', '.join(parts)})"
    lines = [f"{clips}, {counts['slots']} slots, {counts['said']} things said"]
    if counts["not_begun"]:
        lines.append(f"{counts['not_begun']} clips of the data set were not watched: the run has not ended")
    if counts["unjudged"]:
        lines.append(f"{counts['unjudged']} answers are not judged: name a --judge and its --judge-model")
    if counts["unreached"]:
        lines.append(f"{counts['unreached']} slots begin after what was watched")
    for code, count in ((scores["judge"] or {}).get("failed") or {}).items():
        lines.append(f"the judge failed {count} times: {code}")
    for line in lines:
        console.print(line, markup=False, highlight=False)


mount_scenes(app)
mount_runs(app)
