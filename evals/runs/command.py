"""``vigil eval run | rerun | audit | sweep | report``: the commands. Heavy imports wait until one runs."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evals.replay.options import Pace
from evals.told import faults_told
from orchestrator.exits import Exit
from orchestrator.flags import settings_of, with_settings_flags
from orchestrator.offline.flags import AskAtEnd, ReferenceVoice, VoiceName

if TYPE_CHECKING:
    from rich.console import Console

    from evals.runs.audit import Finding
    from evals.runs.runner import Suite, Watcher
    from orchestrator.engine_setup import Engine
    from orchestrator.native_setup import NativeEngines
    from orchestrator.settings import Settings

COMPARISON = "comparison.json"
STREAMS = 2
"""Clips that are watched at a time where nobody says how many."""
SHOWN = 20
"""Differences of a clip that are listed; the others are counted."""
DEFAULT_SEED = 0
"""A run is meant to be repeatable, also where nobody says so."""

DataSet = Annotated[
    Path, typer.Argument(metavar="DATASET", help="A data set's file or folder; see docs/evals.md.")
]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of the run; one that is there goes on.")
]
Format = Annotated[
    str | None, typer.Option("--format", help="Format of the data set; default: found out by its look.")
]
Videos = Annotated[
    Path | None, typer.Option("--videos", metavar="DIR", help="Where its videos are; default: beside it.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="The first so many clips alone.")]
RunPace = Annotated[
    Pace | None,
    typer.Option(help="fast (default): the next frame as soon as one is decided; realtime: at its time."),
]
Streams = Annotated[
    int | None,
    typer.Option(
        min=1, help="Clips that are watched at a time; default: 2, or as many as there is room for."
    ),
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TOML file of settings; default: $VIGIL_CONFIG.")
]


def mount(app: typer.Typer) -> None:
    """Add the commands to the ``vigil eval`` group."""
    app.command("run", no_args_is_help=True)(run)
    app.command("sweep", no_args_is_help=True)(sweep)
    app.command("rerun", no_args_is_help=True)(rerun)
    app.command("audit", no_args_is_help=True)(audit)
    app.command("report", no_args_is_help=True)(report)
    app.command("export", no_args_is_help=True)(export)


@with_settings_flags
def run(
    dataset: DataSet,
    out: Out,
    format: Format = None,
    videos: Videos = None,
    limit: Limit = None,
    pace: RunPace = None,
    streams: Streams = None,
    commit: AskAtEnd = False,
    voice: VoiceName = None,
    ref_audio: ReferenceVoice = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Watch every clip of a data set through the session core, and keep all that comes of it.

    Clips that are finished already are skipped, so a run that was broken off goes on where it was. Every
    setting is a flag, as with `vigil serve`; the seed is 0 where none is given.

    To a full-duplex engine clips are played in real time: their sound, their questions, and a picture a
    second. Questions that a data set only writes are spoken by the voice of --voice-bridge.

    Exit codes: 0 every clip is finished, 1 some failed, 2 wrong flags or settings, or another run's folder,
    5 the engine does not answer, 6 model missing, 130 interrupted.
    """
    console = _console()
    with faults_told():
        from evals.runs.native import Manner, NativeWatcher
        from evals.runs.questions import Asker
        from orchestrator.native_setup import native_family
        from orchestrator.runtime.clock import SystemClock

        suite = _suite(console, dataset, format, videos, limit)
        settings = _settings(settings_of(flags), config)
        manner = Manner(commit, voice, ref_audio)
        if (family := native_family(settings)) is not None:
            if pace is Pace.FAST:
                raise typer.BadParameter("a full-duplex engine hears in real time", param_hint="--pace")
            with _native_engines(settings, family) as engines:
                watcher = NativeWatcher(settings, engines, manner, Asker.of(settings, SystemClock()))
                raise typer.Exit(_watch(out, suite, watcher, streams, console))
        if manner != Manner():
            raise typer.BadParameter(
                "--commit, --voice and --ref-audio are for full-duplex engines", param_hint="--engine"
            )
        with _engine(settings) as engine:
            ticks = _tick_watcher(suite, settings, engine, pace)
            raise typer.Exit(_watch(out, suite, ticks, streams, console))


@with_settings_flags
def sweep(
    dataset: DataSet,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the sweep: a run in each folder.")
    ],
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,VALUE", help="A setting and its values, the usual one first; repeatable."
        ),
    ],
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Change one setting at a time, not every combination.")
    ] = False,
    format: Format = None,
    videos: Videos = None,
    limit: Limit = None,
    pace: RunPace = None,
    streams: Streams = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Run a data set with every combination of some settings, score each, and hold them against the first.

    For example: --vary memory.chunk_frames=100,50 --vary memory.keep=all,answers,nothing
    A sweep that was broken off goes on where it was. Writes comparison.json and prints the ablation table.

    Exit codes: those of `vigil eval run`, the first that is not 0 ends the sweep; 2 there is no such setting.
    """
    from evals.files import write_json
    from evals.runs.sweep import axis_of, points_of
    from evals.scoring.compare import compare, tables_of
    from evals.scoring.folder import read_run, write_scores
    from evals.scoring.scores import scores_of
    from evals.scoring.tables import Form, console_of, show

    console = _console()
    with faults_told():
        suite = _suite(console, dataset, format, videos, limit)
        points = points_of([axis_of(said) for said in vary], one_by_one=one_by_one)
        given = settings_of(flags)
        scored: dict[str, Any] = {}
        # All of them now: a value that can't be is told before hours of other runs.
        wanted = [_settings(point.over(given), config) for point in points]
        # Held for all points, so that an engine that is started here is started once.
        with _engine(wanted[0]):
            for number, (point, settings) in enumerate(zip(points, wanted, strict=True), 1):
                console.print(f"run {number} of {len(points)}: {point.name}", style="bold", markup=False)
                with _engine(settings) as engine:
                    watcher = _tick_watcher(suite, settings, engine, pace)
                    if code := _watch(out / point.name, suite, watcher, streams, console):
                        raise typer.Exit(code)
                scored[point.name] = scores_of(read_run(out / point.name), {})
                write_scores(out / point.name, scored[point.name])
        if len(scored) > 1:
            comparison = compare(scored)
            write_json(out / COMPARISON, comparison)
            show(tables_of(comparison)[:1], Form.TEXT, console_of())


def rerun(
    run: Annotated[Path, typer.Option("--from", metavar="DIR", help="Folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the rerun here, as a run of its own.")
    ] = None,
) -> None:
    """Do a run's sessions again with the recorded answers, through the orchestrator as it is now.

    Needs no engine. An unchanged orchestrator makes the same prompts and decisions, bit for bit; where it
    does not, each difference is told with its clip, tick and section of the prompt.

    Exit codes: 0 all the same, 1 something differs, 2 there is no run, or it is not all there.
    """
    from evals.runs.differences import Difference
    from evals.runs.rerun import rerun as again

    console = _console()

    def tell(clip: str, differ: Sequence[Difference]) -> None:
        said = f"{len(differ)} differences" if differ else "the same, bit for bit"
        console.print(f"{clip}: {said}", markup=False, highlight=False, soft_wrap=True)
        for each in differ[:SHOWN]:
            console.print(f"  {each}", markup=False, highlight=False, soft_wrap=True)
        if len(differ) > SHOWN:
            console.print(f"  and {len(differ) - SHOWN} more", markup=False, highlight=False)

    with faults_told(), TemporaryDirectory() as scratch:
        found = asyncio.run(again(run, out or Path(scratch), tell))
        raise typer.Exit(Exit.FAILED if found else Exit.OK)


@with_settings_flags
def audit(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a scored run.")],
    every: Annotated[bool, typer.Option("--all", help="Every decision, not the wrong ones alone.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many decisions alone.")] = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Ask the wrong decisions of a run again, cold: is each the model's own?

    The recorded prompt goes out whole, under a salt that the engine has never seen. Where the model had been
    sure of its first token (by more than 0.1 of probability), it must choose the same again.

    Exit codes: 0 it does, 1 some come out otherwise, were not answered, or were silenced by something else
    than the model, 2 no scored run, or another engine, 5 the engine does not answer.
    """
    from evals.runs.audit import audit as ask_again
    from evals.runs.audit import wrong_decisions
    from evals.runs.manifest import read_taped
    from evals.runs.rerun import finished_clips
    from evals.scoring.folder import read_run, read_scores

    console = _console()

    def tell(finding: Finding) -> None:
        if finding.faulty or finding.error is not None:
            line = f"{finding.clip}, tick {finding.tick}: {finding.error or 'comes out otherwise'}"
            console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)

    with faults_told():
        manifest = read_taped(run)
        wrong: Mapping[tuple[str, int], str] = {}
        if every:
            record = read_run(run).digest
        else:
            scores = read_scores(run)
            wrong, record = wrong_decisions(scores), str(scores["record"])
        settings = _settings(settings_of(flags), config)
        with _engine(settings) as engine:
            clips = finished_clips(run)
            asked = ask_again(
                run, manifest, clips, wrong, settings, engine, tell, record, every=every, limit=limit
            )
            findings = asyncio.run(asked)
    _say_findings(findings, console)
    wrong_turns = any(each.faulty or each.error is not None for each in findings)
    held = any(each.held and each.why is not None for each in findings)
    raise typer.Exit(Exit.FAILED if wrong_turns or held else Exit.OK)


def _say_findings(findings: Sequence[Finding], console: Console) -> None:
    unanswered = [each for each in findings if each.error is not None]
    sure = [each for each in findings if each.sure and each.error is None]
    faulty = [each for each in sure if each.faulty]
    lines = [
        f"{len(findings)} decisions looked at; the model was sure of {len(sure)} that were asked again cold: "
        f"{len(sure) - len(faulty)} come out the same, {len(faulty)} otherwise"
    ]
    if unanswered:
        lines.append(f"{len(unanswered)} were not answered")
    for reason, count in Counter(e.reason for e in findings if e.held and e.why is not None).items():
        lines.append(f"{count} wrong silences are not the model's: {reason}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def report(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")],
) -> None:
    """Write the page of a run: report.html in its folder, one file that loads nothing from elsewhere.

    Timelines of truth and decisions, measures with their intervals, the operating curve, wrong decisions with
    their pictures, latency and cost. A run that is not scored yet is scored, without a judge.

    Exit codes: 0 written, 2 there is no run, or it can't be read.
    """
    from evals.runs.reporting import report as write

    with faults_told():
        typer.echo(str(write(run)))


def export(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")],
    out: Annotated[Path, typer.Option("--out", metavar="ROOT", help="Folder to write to.")],
) -> None:
    """Write a run as Omni-DuplexEval's own scorer (vllm-omni's benchmarks/duplex) reads it.

    ROOT/responses holds what was said, ROOT/dataset.jsonl the samples it was said to. Clips of other data
    sets become samples where a query waits for one or two events. Frames of a run at --pace fast do not come
    at their time, so its clock counts as invalid there: score it with --allow-invalid-clock.

    Exit codes: 0 written, 2 there is no run.
    """
    from evals.runs.export import export as write

    with faults_told():
        exported = write(run, out)
    typer.echo(f"{exported.samples} samples in {out}; {exported.left_out} queries have no task there")


def _tick_watcher(suite: Suite, settings: Settings, engine: Engine, pace: Pace | None) -> Watcher:
    from evals.runs.sources import source_of
    from evals.runs.ticks import TickWatcher

    return TickWatcher(settings, engine, lambda clip: source_of(clip, suite.videos), pace or Pace.FAST)


def _watch(out: Path, suite: Suite, watcher: Watcher, streams: int | None, console: Console) -> Exit:
    """Run to its end, or to the first Ctrl-C."""
    from evals.runs.console import RunProgress
    from evals.runs.runner import Outcome, Runner

    runner = Runner(out, suite, watcher, streams=streams or min(STREAMS, watcher.seats[0]))

    async def watch() -> Outcome:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        with RunProgress(console) as progress:
            return await runner.run(progress, stop)

    outcome = asyncio.run(watch())
    for clip, reason in sorted(outcome.failed.items()):
        console.print(f"{clip} failed: {reason}", style="red", markup=False, soft_wrap=True)
    console.print(
        f"{outcome.finished} clips watched, {outcome.skipped} finished before, {len(outcome.failed)} failed; "
        f"files: {runner.folder}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if outcome.full:
        console.print(
            f"{runner.folder} takes no more files; make room, then go on with the same command",
            style="red",
            markup=False,
            soft_wrap=True,
        )
        return Exit.FAILED
    if outcome.engine_lost:
        return Exit.ENGINE_UNREACHABLE
    return Exit.INTERRUPTED if outcome.stopped else Exit.FAILED if outcome.failed else Exit.OK


# --- what commands share ------------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    return Console()


def _settings(flags: dict[str, Any], config: Path | None) -> Settings:
    from orchestrator.settings import load_settings

    settings = load_settings(flags, config)
    if settings.decision.seed is not None:
        return settings
    return load_settings({**flags, "decision": {**flags.get("decision", {}), "seed": DEFAULT_SEED}}, config)


@contextmanager
def _native_engines(settings: Settings, family: str) -> Iterator[NativeEngines]:
    from orchestrator.native_setup import prepare_native

    engines = prepare_native(settings, family, lambda line: typer.echo(line, err=True))
    try:
        yield engines
    finally:
        engines.stop()


@contextmanager
def _engine(settings: Settings) -> Iterator[Engine]:
    from evals.replay.core import engine_of

    with engine_of(settings, lambda line: typer.echo(line, err=True)) as engine:
        yield engine


def _suite(console: Console, path: Path, format: str | None, videos: Path | None, limit: int | None) -> Suite:
    from evals.readers import open_dataset
    from evals.runs.runner import Suite

    found = open_dataset(path, format, videos)
    for name in found.missing:
        console.print(f"missing: {name}", style="yellow", markup=False, soft_wrap=True)
    clips = found.clips[:limit]
    shown = {clip.id: file for clip in clips if (file := found.video(clip)) is not None}
    return Suite(found.name, found.format, clips, shown, found.files)
