"""``vigil replay``: the command. Heavy imports wait until it runs, so that ``vigil --help`` is quick."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from typer.core import TyperCommand

from evals.replay.options import Pace, Query, ReplayError, ReplayOptions
from orchestrator.exits import MEANINGS, Exit
from orchestrator.keys import checked_option
from orchestrator.offline.flags import AskAtEnd, ReferenceVoice, Tail, VoiceName
from orchestrator.server_address import is_address

if TYPE_CHECKING:
    from rich.console import Console

    from evals.replay.drive import Drive, Sampling
    from evals.replay.folder import RunFolder
    from evals.replay.run import Ending
    from evals.replay.source import Source

QUERY_AT = "--query-at"


class ReplayCommand(TyperCommand):
    """Lets ``--query-at`` take two values, any number of times; typer has no such option type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined: list[str] = []
        rest = list(args)
        while rest:
            arg = rest.pop(0)
            joined.append(arg)
            if arg == "--":
                break
            if arg == QUERY_AT:
                if len(rest) < 2:
                    ctx.fail(f"{QUERY_AT} takes two values: SECONDS TEXT")
                joined.append(f"{rest.pop(0)} {rest.pop(0)}")
        return super().parse_args(ctx, [*joined, *rest])


def mount(app: typer.Typer) -> None:
    """Add the command to the ``vigil`` application."""
    app.command("replay", cls=ReplayCommand, epilog=_epilog(), no_args_is_help=True)(replay)


def _epilog() -> str:
    return "Exit codes:\n\n" + "\n\n".join(f"{code:>4}  {text}" for code, text in MEANINGS.items())


def replay(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A video file, a folder of pictures or clips, a picture, an RTSP or HTTP stream."
        ),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(help="Standing query from the start; given again, one more line of it."),
    ] = None,
    query_at: Annotated[
        list[str] | None,
        typer.Option(
            QUERY_AT, metavar="SECONDS TEXT", help="Set or replace the query at a media time; repeatable."
        ),
    ] = None,
    clear_at: Annotated[
        list[float] | None,
        typer.Option(min=0, metavar="SECONDS", help="Withdraw the query at a media time; repeatable."),
    ] = None,
    pace: Annotated[
        Pace, typer.Option(help="realtime: frames at their time; fast: the next as soon as one is decided.")
    ] = Pace.REALTIME,
    engine: Annotated[
        str | None, typer.Option(metavar="URL|PROFILE", help="Engine to use; default: the settings'.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Drive a running vigil serve over HTTP instead of an engine."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="VIGIL_SERVER_KEY", callback=checked_option, help="Key for --server.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Served model; default: the only one.")] = None,
    family: Annotated[
        str | None, typer.Option(help="Prompt pack; default: the profile's, or generic for an engine URL.")
    ] = None,
    persona: Annotated[str | None, typer.Option(help="Persona of the prompt pack.")] = None,
    language: Annotated[str | None, typer.Option(help="Language of prompts and summaries.")] = None,
    solver: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Chat endpoint that answers the questions the model delegates."),
    ] = None,
    solver_model: Annotated[str | None, typer.Option(metavar="NAME", help="Model of --solver.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sampling.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Speak when P(response) reaches this; between 0 and 1.")
    ] = None,
    loop: Annotated[
        int, typer.Option(min=1, help="Play the source this many times; media time runs on.")
    ] = 1,
    max_ticks: Annotated[int | None, typer.Option(min=1, help="Stop after this many decisions.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the run's files; default: vigil-runs/NAME-TIME."),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(metavar="IN.wav", help="Play this to a model that listens (--server); repeatable."),
    ] = None,
    commit: AskAtEnd = False,
    voice: VoiceName = None,
    ref_audio: ReferenceVoice = None,
    tail: Tail = None,
) -> None:
    """Watch a video through the model, tick by tick, and write down every decision.

    Writes decisions.jsonl (one object a tick, as it happens), summary.json and report.html into the folder.
    A file waits for the model and loses no frame; of a live stream the newest frame is taken.

    With --audio recordings are played to a session of --server as a microphone would bring them, SOURCE
    being what is seen meanwhile. Writes out.wav, decisions.jsonl (a row a unit, then one a response) and
    input_timeline.json.
    """
    if audio:
        raise typer.Exit(_listen(audio, source, server, api_key, model, out, commit, voice, ref_audio, tail))
    if source is None:
        raise typer.BadParameter("name what is watched, or a recording with --audio", param_hint="SOURCE")
    if server is not None:
        if not is_address(server):
            raise typer.BadParameter("is a URL: http://host:port", param_hint="--server")
        settled = {
            "engine": engine,
            "family": family,
            "language": language,
            "solver": solver,
            "seed": seed,
            "threshold": threshold,
        }
        for name, value in settled.items():
            if value is not None:
                raise typer.BadParameter("is settled by the server", param_hint=f"--{name}")
    if threshold is not None and not 0 < threshold < 1:
        raise typer.BadParameter("lies between 0 and 1, both excluded", param_hint="--threshold")
    if (solver is None) != (solver_model is None):
        raise typer.BadParameter("--solver and --solver-model go together", param_hint="--solver")
    options = ReplayOptions(
        source=source,
        out=out or _default_out(source),
        queries=[*_queries(query or [], query_at or []), *(Query(at_s, None) for at_s in clear_at or ())],
        pace=pace,
        engine=engine,
        server=server,
        api_key=api_key,
        model=model,
        family=family,
        persona=persona,
        language=language,
        solver=solver,
        solver_model=solver_model,
        seed=seed,
        loop=loop,
        max_ticks=max_ticks,
        threshold=threshold,
    )
    raise typer.Exit(run(options))


def _listen(
    audio: list[Path],
    source: str | None,
    server: str | None,
    api_key: str | None,
    model: str | None,
    out: Path | None,
    commit: bool,
    voice: str | None,
    ref_audio: Path | None,
    tail: float | None,
) -> int:
    if server is None:
        raise typer.BadParameter("--audio needs a running vigil serve", param_hint="--server")
    from orchestrator.offline.command import Offline, tail_ms
    from orchestrator.offline.command import run as play
    from orchestrator.offline.drive import PlayOptions

    folder = out or _default_out(str(audio[0]))
    session = {"voice": voice} if voice is not None else {}
    options = PlayOptions(server, api_key, model, session, asks=commit, tail_ms=tail_ms(tail, commit))
    clips = (source,) if source is not None else ()
    return play(Offline(tuple(audio), folder / "out.wav", options, clips, ref_audio))


def _queries(lines: list[str], timed: list[str]) -> list[Query]:
    """The queries of the flags; repeated ``--query`` lines make one query."""
    queries = [Query(0.0, "\n".join(lines))] if lines else []
    for value in timed:
        seconds, _, text = value.partition(" ")
        try:
            at_s = float(seconds)
        except ValueError:
            raise typer.BadParameter(f"{seconds!r} is no number of seconds", param_hint=QUERY_AT) from None
        if not 0 <= at_s < float("inf"):
            raise typer.BadParameter(f"{seconds} lies before the start", param_hint=QUERY_AT)
        queries.append(Query(at_s, text))
    if any(not (query.text or "").strip() for query in queries):
        raise typer.BadParameter("the text of a query is empty", param_hint="--query")
    return queries


def _default_out(source: str) -> Path:
    name = Path(urlsplit(source).path if "://" in source else source).stem or "stream"
    folder = Path("vigil-runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    further = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(each for each in chain([folder], further) if not each.exists())


def run(options: ReplayOptions) -> Exit:
    """Replay with files, console and signals; the exit code. Messages go to standard error."""
    from rich.console import Console

    from evals.replay.source import Video

    problems = Console(stderr=True)
    try:
        check_free(options.out)
        source = Video(options.source, options.loop)
        with drive_of(options, lambda line: problems.print(line, style="dim", markup=False)) as drive:
            return asyncio.run(_run(options, source, drive, Console()))
    except ReplayError as error:
        problems.print(
            f"vigil replay: {error.message}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        return error.exit_code
    except KeyboardInterrupt:
        # Before the first frame; from then on the loop itself ends the run and writes its files.
        return Exit.INTERRUPTED


@contextmanager
def drive_of(options: ReplayOptions, tell: Callable[[str], None]) -> Iterator[Drive]:
    """What decides: the server of the options, or a core of our own behind their engine."""
    if options.server is not None:
        from evals.replay.http_api import HttpDrive
        from orchestrator.runtime.clock import SystemClock

        yield HttpDrive(
            options.server,
            model=options.model,
            persona=options.persona,
            api_key=options.api_key,
            clock=SystemClock(),
        )
        return
    from evals.replay.core import engine_of, settings_of
    from evals.replay.in_process import InProcessDrive

    settings = settings_of(options)
    with engine_of(settings, tell) as engine:
        yield InProcessDrive(settings, engine)


async def _run(options: ReplayOptions, source: Source, drive: Drive, console: Console) -> Exit:
    from evals.replay.console import RunConsole, print_outcome
    from evals.replay.run import Ending, replay
    from orchestrator.runtime.clock import SystemClock

    try:
        sampling = await drive.prepare()
        ending = Ending(asyncio.Event())
        _stop_on_signals(ending)
        with open_folder(options) as folder:
            with RunConsole(console, _expected_ticks(options, source, sampling)) as view:
                summary = await replay(options, source, drive, folder, view, SystemClock(), ending, sampling)
            print_outcome(console, summary, str(options.out))
    finally:
        await drive.close()
    if ending.error is not None:
        raise ending.error
    return ending.exit_code


def check_free(folder: Path) -> None:
    """Each run has a folder of its own: an earlier one is never written over."""
    from evals.replay.folder import DECISIONS, REPORT, SUMMARY

    if held := next((name for name in (DECISIONS, SUMMARY, REPORT) if (folder / name).exists()), None):
        message = f"{folder} holds a run already ({held}); name another folder with --out"
        raise ReplayError(Exit.USAGE, "out_taken", message)


def open_folder(options: ReplayOptions) -> RunFolder:
    from evals.replay.folder import RunFolder

    try:
        return RunFolder(options.out)
    except OSError as error:
        message = f"can't write to {options.out}: {error.strerror}; name another folder with --out"
        raise ReplayError(Exit.USAGE, "out_unusable", message) from None


def _expected_ticks(options: ReplayOptions, source: Source, sampling: Sampling) -> int | None:
    known = [n for n in (source.expected(sampling), options.max_ticks) if n is not None]
    return min(known) if known else None


def _stop_on_signals(ending: Ending) -> None:
    """The first Ctrl-C or termination ends the run and writes its files."""

    def stop(code: Exit) -> None:
        if not ending.stop.is_set():
            ending.stop_code = code
            ending.stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop, Exit.INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, stop, Exit.TERMINATED)
