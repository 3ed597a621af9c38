"""``vigil attach`` and ``vigil detach``: a camera or a file shown to a session by a running service."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import orjson
import typer

from orchestrator.keys import checked_option
from orchestrator.server_address import checked_server
from orchestrator.session_access import AccessError, Record, ServerAccess

Server = Annotated[str, typer.Option(metavar="URL", callback=checked_server, help="A running service.")]
ApiKey = Annotated[
    str | None, typer.Option(envvar="VIGIL_SERVER_KEY", callback=checked_option, help="Key for it.")
]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="Its id or its name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one state a line.")]

HERE = "http://127.0.0.1:8070"
LOOK_S = 1.0
OVER = frozenset({"ended", "failed"})
_FIGURES = ("frames", "dropped", "repeated", "corrupt", "reconnects", "sound_dropped")


def attach(
    session: Name,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="rtsp://..., or a file in the service's folder of sources."),
    ],
    server: Server = HERE,
    api_key: ApiKey = None,
    leave: Annotated[bool, typer.Option("--leave", help="Begin it and return; it plays on.")] = False,
    json: Json = False,
) -> None:
    """Have a running service show a camera or a file to a session, and tell how it does until it ends.

    The session begins with it if there is none of that name. Ctrl-C detaches the source; the session goes on.
    """
    with access_to(server, api_key) as access:
        told = access.attach(session, source)
        if leave:
            _tell(told, json)
            return
        try:
            with _interruptible():
                told = _watch(access, session, told, json)
        except KeyboardInterrupt:
            access.detach(session, told["id"])
            typer.echo(f"vigil: detached {told['source']}", err=True)
            return
        if told["state"] == "failed":
            raise AccessError(f"{told['error']}: {told['message'] or told['source']}")


def detach(
    session: Name,
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE_ID", help="Default: all that have not ended.")
    ] = None,
    server: Server = HERE,
    api_key: ApiKey = None,
) -> None:
    """Stop showing a source to a session. What it has shown stays in the session's memory."""
    with access_to(server, api_key) as access:
        ids = [source] if source else [s["id"] for s in access.sources(session) if s["state"] not in OVER]
        if not ids:
            raise AccessError(f"session {session} has no source that plays")
        for each in ids:
            access.detach(session, each)
            typer.echo(f"detached {each}")


def line(told: Mapping[str, Any]) -> str:
    """A source's state as people read it."""
    parts = [f"{told['id']} {told['state']}: {told['frames']} frames"]
    parts += [f"{told[name]} {name.replace('_', ' ')}" for name in _FIGURES[1:] if told[name]]
    if told["attempts"]:
        parts.append(f"attempt {told['attempts']}")
    parts.append(f"lag {told['lag_ms'] / 1000:.1f} s")
    parts.append(f"sound {told['sound_ms'] / 1000:.1f} s" if told["sound_ms"] else f"sound {told['sound']}")
    return ", ".join(parts)


# --- parts ----------------------------------------------------------------------------------------------


def _watch(access: ServerAccess, session: str, told: Record, json: bool) -> Record:
    """Until it is over; a line whenever something has changed."""
    said = ""
    while True:
        now = line(told)
        if now != said:
            _tell(told, json)
            said = now
        if told["state"] in OVER:
            return told
        time.sleep(LOOK_S)
        told = access.source(session, told["id"])


def _tell(told: Record, json: bool) -> None:
    typer.echo(orjson.dumps(dict(told)).decode() if json else line(told))


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does, also where a shell began it with Ctrl-C ignored."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def access_to(server: str, api_key: str | None) -> Iterator[ServerAccess]:
    """A running service; what it refuses ends the command with its words."""
    try:
        yield ServerAccess(server, api_key)
    except AccessError as error:
        typer.echo(f"vigil: {error.message}", err=True)
        raise typer.Exit(error.exit_code) from error
