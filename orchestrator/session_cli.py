"""``vigil session``: sessions listed, looked into, exported, deleted.

With ``--server`` the commands ask a running service. Without it they read the store of the data folder
themselves, which is possible beside a running service too; only deleting is left to the service then.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import orjson
import typer

from orchestrator.exits import Exit
from orchestrator.keys import checked_option
from orchestrator.server_address import checked_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from orchestrator.session_access import Record, SessionAccess

Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        callback=checked_server,
        help="A running service; default: read the data folder itself.",
    ),
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="VIGIL_SERVER_KEY", callback=checked_option, help="Key for --server.")
]
Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder; default: the settings'.")]
Tenant = Annotated[str, typer.Option(help="Whose sessions, in the data folder; local: those without keys.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="Its id, or its name while it is not over.")]

LOCAL = "local"
_GROUPS = (
    "config", "counts", "ticks", "silent_because", "failed_because", "frames_not_shown", "handovers",
    "reuse", "health",
)  # fmt: skip

app = typer.Typer(
    name="session",
    help="Sessions, live or kept: list, show, memory, export, delete.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("list")
def list_sessions(
    server: Server = None,
    api_key: ApiKey = None,
    data: Data = None,
    tenant: Tenant = LOCAL,
    json: Json = False,
) -> None:
    """All sessions, newest first."""
    with _access(server, api_key, data, tenant) as access:
        found = list(access.sessions())
    if json:
        _print_json(found)
        return
    table = _table("id", "name", "state", "begun", "last fact", "facts")
    for each in found:
        table.add_row(
            each["id"], each["alias"] or "", each["state"], _when(each["created_ms"]),
            _when(each["updated_ms"]), str(each["facts"]),
        )  # fmt: skip
    _print(table)


@app.command()
def show(
    session: Name,
    server: Server = None,
    api_key: ApiKey = None,
    data: Data = None,
    tenant: Tenant = LOCAL,
    json: Json = False,
) -> None:
    """State, configuration, counts, reuse, and why it was silent how often."""
    with _access(server, api_key, data, tenant) as access:
        about = access.about(session)
    if json:
        _print_json(about)
        return
    table = _table("", "")
    for name in ("id", "alias", "model", "state", "closed_because", "facts"):
        if about.get(name) is not None:
            table.add_row(name, str(about[name]))
    for name in ("created_ms", "updated_ms", "closed_ms"):
        if about.get(name) is not None:
            table.add_row(name.removesuffix("_ms"), _when(about[name]))
    for name in _GROUPS:
        if about.get(name):
            table.add_row(name, _pairs(about[name]))
    _print(table)


@app.command()
def memory(
    session: Name,
    server: Server = None,
    api_key: ApiKey = None,
    data: Data = None,
    tenant: Tenant = LOCAL,
    json: Json = False,
) -> None:
    """What it remembers, oldest first, with times and token counts."""
    with _access(server, api_key, data, tenant) as access:
        told = access.memory(session)
    if json:
        _print_json(told)
        return
    for line in memory_lines(told):
        typer.echo(line)


@app.command()
def sources(session: Name, server: Server = None, api_key: ApiKey = None, json: Json = False) -> None:
    """What a running service shows to it: cameras and files, and how they do."""
    from orchestrator.attach_cli import HERE, line
    from orchestrator.session_access import ServerAccess

    with _access(server or HERE, api_key, None, LOCAL) as access:
        assert isinstance(access, ServerAccess)
        found = access.sources(session)
    if json:
        _print_json(found)
        return
    for each in found:
        typer.echo(f"{line(each)}, {each['source']}")
    if not found:
        typer.echo(f"vigil: nothing is shown to {session}", err=True)


@app.command()
def export(
    session: Name,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to; -: standard output; default: SESSION.tar."),
    ] = None,
    server: Server = None,
    api_key: ApiKey = None,
    data: Data = None,
    tenant: Tenant = LOCAL,
) -> None:
    """Its log of facts and its frames, as one tar."""
    target = out or Path(f"{session.replace('/', '_')}.tar")
    with _access(server, api_key, data, tenant) as access:
        if str(target) == "-":
            access.export(session, sys.stdout.buffer.write)
            return
        with _written(target) as file:
            access.export(session, file.write)
    typer.echo(f"{target}: {target.stat().st_size} bytes")


@app.command()
def delete(
    session: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = None,
    api_key: ApiKey = None,
    data: Data = None,
    tenant: Tenant = LOCAL,
) -> None:
    """End it if it is live, and remove its log and its frames for good."""
    with _access(server, api_key, data, tenant) as access:
        found = access.about(session)["id"]
        if not yes:
            typer.confirm(f"Delete session {found} with its log and frames?", abort=True)
        access.delete(found)
    typer.echo(f"deleted {found}")


def access_of(
    server: str | None, api_key: str | None, data: Path | None, tenant: str = LOCAL
) -> SessionAccess:
    """Raises ``AccessError``."""
    from orchestrator.session_access import AccessError, FolderAccess, ServerAccess
    from orchestrator.settings import SettingsError, load_settings

    if server is not None:
        if data is not None or tenant != LOCAL:
            raise AccessError("--data and --tenant are settled by --server and its key", Exit.USAGE)
        return ServerAccess(server, api_key)
    try:
        settings = load_settings({"data": data} if data is not None else {})
    except SettingsError as error:
        raise AccessError(str(error), Exit.USAGE) from error
    url = settings.store.url
    return FolderAccess(settings.data, url.get_secret_value() if url else None, tenant)


def memory_lines(told: Record) -> Iterator[str]:
    """The tiers as text."""

    def span(entry: Mapping[str, Any]) -> str:
        return f"{entry['start_ms'] / 1000:.1f}-{entry['end_ms'] / 1000:.1f} s"

    def passages(title: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        if entries:
            yield f"{title} ({sum(entry['tokens'] for entry in entries)} tokens)"
            for entry in entries:
                yield f"  {span(entry)}, {entry['tokens']} tokens: {entry['text']}"

    yield from passages("Long-term blocks", told["long_term"])
    yield from passages("Summaries", told["summaries"])
    if "talk" in told:
        yield from _talk(told["talk"])
        return
    for gap in told["gaps"]:
        yield f"Gap {span(gap)}" + ("" if gap["final"] else ", to be mended")
    for chunk in told["pending"]:
        yield f"Chunk {chunk['chunk']} {span(chunk)}: {chunk['frames']} frames, its summary is being written"
    entries = told["qa"]["entries"]
    if entries:
        yield f"Questions and answers ({sum(entry['tokens'] for entry in entries)} tokens)"
        for entry in entries:
            yield f"  {entry['media_time_ms'] / 1000:.1f} s, {entry['kind']}: {entry['text']}"
    for query in told["queries"]:
        yield f"Standing query, {query['tokens']} tokens: {query['text']}"
    window = told["window"]
    counted = "" if window["tokens_counted"] else ", estimated"
    yield (
        f"Window {window['index']}: {window['frames']} frames in {len(window['turns'])} turns, "
        f"{window['tokens']} tokens{counted}"
    )


def _talk(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"Said lately ({sum(line['tokens'] for line in lines)} tokens)"
    for line in lines:
        shown = f"{line['frames']} frames" if line["frames"] else ""
        said = ": ".join(part for part in (shown, line["text"]) if part)
        cut = " (the rest was not heard)" if line["cut"] else ""
        yield f"  {line['start_ms'] / 1000:.1f} s, {line['who']}: {said}{cut}"


# --- parts ----------------------------------------------------------------------------------------------


@contextmanager
def _access(
    server: str | None, api_key: str | None, data: Path | None, tenant: str
) -> Iterator[SessionAccess]:
    from orchestrator.session_access import AccessError

    try:
        yield access_of(server, api_key, data, tenant)
    except AccessError as error:
        typer.echo(f"vigil: {error.message}", err=True)
        raise typer.Exit(error.exit_code) from error


@contextmanager
def _written(target: Path) -> Iterator[IO[bytes]]:
    """A file that is there whole or not at all."""
    from orchestrator.files import whole_file
    from orchestrator.session_access import AccessError

    try:
        with whole_file(target) as file:
            yield file
    except OSError as error:
        raise AccessError(f"can't write {target}: {error.strerror}", Exit.USAGE) from error


def _table(*headers: str) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=any(headers), pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold", no_wrap=header == "id")  # ids are copied
    return table


def _print(table: Table) -> None:
    from rich.console import Console

    # Texts of users may look like markup. Where nobody looks, a line is as long as it is.
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def _print_json(value: Any) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _pairs(values: Mapping[str, Any]) -> str:
    return "  ".join(
        f"{name}={_said(value)}" for name, value in values.items() if value not in (None, {}, [])
    )


def _said(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, Mapping):
        return _pairs(value)
    if isinstance(value, list | tuple):
        return ", ".join(_said(each) for each in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
