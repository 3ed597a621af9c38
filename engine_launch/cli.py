"""``vigil engine``: start, check and stop engines.

Exit codes: 0 all is well; 1 the engine runs but a check failed; 2 wrong usage, or a profile that doesn't
exist or is wrong; 5 nothing answers there, or no such engine runs; 7 the engine could not be started; 130
interrupted (what was being started is stopped).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status as Spinner
from rich.table import Table

from engine_launch import launch, supervisor
from engine_launch.atomic import Progress
from engine_launch.client import EngineHttp, NoAnswer, Unreachable
from engine_launch.duplex_check import duplex_check
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.errors import LaunchError, NotRunning, ProfileError
from engine_launch.profile import base_name, load_profile, profile_names
from engine_launch.selfcheck import SelfCheck, Status, self_check
from engine_launch.target import DuplexForFamily, TagsForFamily, duplex_family_at, http_address, is_url

CHECK_FAILED, USAGE, NO_ANSWER, NOT_THERE, NOT_STARTED, INTERRUPTED = 1, 2, 5, 5, 7, 130
WIDE = 90
"""Columns of a terminal in which remedies have room beside what was seen."""
_MARKS = {Status.OK: "[green]ok[/]", Status.WARN: "[yellow]warn[/]", Status.FAIL: "[red]fail[/]"}

ProfileArgument = Annotated[
    str,
    typer.Argument(
        help="standin-cpu, joyvl, joyvl:24gb, ..., or the path of your own .toml", metavar="PROFILE"
    ),
]


def make_app(
    tags_for_family: TagsForFamily,
    console: Console | None = None,
    *,
    duplex_for_family: DuplexForFamily = lambda family: None,
) -> typer.Typer:
    """The sub-command. ``tags_for_family`` gives the marks of a prompt pack; it may raise ``KeyError``."""
    app = typer.Typer(name="engine", help="Start, check and stop engines.", no_args_is_help=True)
    out = console or Console()

    @app.command()
    def up(
        profile: ProfileArgument,
        port: Annotated[int | None, typer.Option(help="Port to listen on; the profile's by default.")] = None,
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
        model: Annotated[str | None, typer.Option(help="Folder or Hugging Face id of other weights.")] = None,
        name: Annotated[
            str | None, typer.Option(help="Name to find it by; the profile's by default. Two may run then.")
        ] = None,
        stay: Annotated[bool, typer.Option("--stay", help="Don't return; end with the engine.")] = False,
    ) -> None:
        """Start the engine of a profile and check it. A running one with the same settings is kept.

        With --stay (for containers) it is watched: this command ends, with exit code 4, when the engine dies
        or is wedged, so that whatever restarts it does; and it stops the engine when it is told to end.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun is stopped then, too
        with _errors_told(out), _drawn(out) as progress:
            wanted = load_profile(profile)
            if model is not None:
                nothing = dict.fromkeys(("shipped", "builder", "ask"))
                named = {**nothing, "path": model, "served_name": wanted.model.served_name}
                wanted = wanted.changed(model=named)
            duplex = duplex_for_family(wanted.family) if wanted.duplex and wanted.family else None
            running = launch.up(wanted, name=name, host=host, port=port, duplex=duplex, progress=progress)
            progress("checking", "a session" if duplex else "real requests")
            if duplex is not None:
                checked = duplex_check(running.url, duplex, model=running.model)
            else:
                checked = self_check(
                    running.url,
                    model=running.model,
                    tags=tags_for_family(running.family) if running.family else None,
                    launched=running,
                    words_only=running.family is None,
                )
        show(out, running.url, checked)
        out.print(f"{running.profile} serves [bold]{running.model}[/] at {running.url} (pid {running.pid})")
        out.print(f"Log: {running.log}\nStop it: vigil engine down {running.name}", highlight=False)
        if stay and checked.answered:
            raise typer.Exit(_watched(out, running, duplex))
        raise typer.Exit(code_of(checked))

    @app.command()
    def check(
        target: Annotated[str, typer.Argument(help="Address of an engine, or a profile started here.")],
        model: Annotated[str | None, typer.Option(help="Served model; the first one by default.")] = None,
        family: Annotated[
            str | None,
            typer.Option(help="Prompt pack whose tags to look for, or native profile to compare with."),
        ] = None,
        api_key: Annotated[str | None, typer.Option(envvar="VIGIL_ENGINE_API_KEY")] = None,
    ) -> None:
        """Show with real requests what an engine can do, and what to change where it falls short."""
        with _errors_told(out), _drawn(out) as progress:
            target = http_address(target)
            running = supervisor.find_by_url(target) if is_url(target) else _found(target)
            url = running.url if running else EngineHttp(target).base_url
            known = family or (running.family if running else None)
            if running is None and known is None:
                with suppress(Unreachable, NoAnswer):  # the check tells of it
                    known = duplex_family_at(url, api_key)
            served = model or (running.model if running else None)
            progress("checking", f"real requests to {url}")
            duplex = duplex_for_family(known) if known else None
            if duplex is not None:
                checked = duplex_check(url, duplex, model=served, api_key=api_key)
            else:
                checked = self_check(
                    url,
                    model=served,
                    tags=tags_for_family(known) if known else None,
                    launched=running,
                    api_key=api_key,
                    words_only=running is not None and running.family is None,
                )
        show(out, url, checked)
        raise typer.Exit(code_of(checked))

    @app.command()
    def down(profile: ProfileArgument) -> None:
        """Stop the engine of a profile (or of a name given to it) and all its processes."""
        with _errors_told(out), _drawn(out) as progress:
            progress("stopping", base_name(profile))
            running = launch.down(base_name(profile))
        out.print(f"stopped {running.profile} (pid {running.pid})")

    @app.command(name="list")
    def list_() -> None:
        """The profiles, and the engines that run."""
        table = Table("profile", "what it is")
        with _errors_told(out):
            for name in profile_names():
                table.add_row(name, load_profile(name).summary)
        out.print(table)
        for running in supervisor.running_engines():
            out.print(f"running: {running.name} at {running.url}, model {running.model}, pid {running.pid}")

    return app


def code_of(checked: SelfCheck) -> int:
    """The exit code a self-check stands for."""
    if not checked.answered and checked.checks[-1].name in ("reachable", "answer", "engine"):
        return NO_ANSWER
    return 0 if checked.ok else CHECK_FAILED


def show(out: Console, url: str, checked: SelfCheck) -> None:
    """The table of checks, remedies beside the lines that need one."""
    table = Table("check", "", title=f"Engine at {url}", title_justify="left")
    table.add_column("seen", overflow="fold")
    # Flags are copied: they stay whole, where the table does not become wider than the terminal for that.
    table.add_column("what to do", overflow="fold", min_width=28 if out.width >= WIDE else None)
    for check in checked.checks:
        table.add_row(check.name, _MARKS[check.status], escape(check.detail), escape(check.remedy))
    out.print(table)


def _watched(out: Console, running: supervisor.Running, duplex: DuplexSpec | None) -> int:
    """Until the engine no longer answers, or an interrupt; it is stopped either way."""
    try:
        why = launch.watch(running, duplex)
        out.print(f"[red]{escape(why)}[/]", highlight=False)
        for line in supervisor.log_tail(Path(running.log)):
            out.print(escape(line), style="dim", highlight=False)
        return NO_ANSWER
    except KeyboardInterrupt:
        out.print(f"stopping {running.profile}")
        return 0
    finally:
        supervisor.stop(running, launch.STOP_S)


def _found(named: str) -> supervisor.Running:
    running = supervisor.find(base_name(named))
    if running is None:
        if base_name(named) not in map(base_name, profile_names()):
            load_profile(named)  # says what profiles there are
        raise NotRunning(f"{named} does not run", f"Start it: vigil engine up {named}")
    return running


@contextmanager
def _drawn(out: Console) -> Iterator[Progress]:
    """Progress as a spinner on a terminal, as one line per stage elsewhere."""
    if not out.is_terminal:
        told: set[str] = set()

        def tell(stage: str, detail: str) -> None:
            if stage not in told:
                told.add(stage)
                out.print(escape(f"{stage}: {detail}"), highlight=False)

        yield tell
        return
    with Spinner("", console=out) as spinner:
        yield lambda stage, detail: spinner.update(f"[bold]{escape(stage)}[/] {escape(detail)}")


@contextmanager
def _errors_told(out: Console) -> Iterator[None]:
    """Launch errors become a message, what to do, the log's last lines, and an exit code."""
    try:
        yield
    except LaunchError as error:
        for line in getattr(error, "log_tail", ()):
            out.print(escape(line), style="dim", highlight=False)
        out.print(f"[red]{escape(error.message)}[/]", highlight=False)
        if error.remedy:
            out.print(escape(error.remedy), highlight=False)
        raise typer.Exit(_exit_code(error)) from None
    except KeyError as error:
        out.print(f"[red]there is no prompt pack called {escape(str(error))}[/]", highlight=False)
        raise typer.Exit(USAGE) from None
    except KeyboardInterrupt:
        out.print("interrupted; what was being started is stopped")
        raise typer.Exit(INTERRUPTED) from None


def _exit_code(error: LaunchError) -> int:
    if isinstance(error, ProfileError):
        return USAGE
    return NOT_THERE if isinstance(error, NotRunning) else NOT_STARTED
