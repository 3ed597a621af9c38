"""``vigil engine served|drain|admit``: the engines behind a running service."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from orchestrator.attach_cli import HERE, ApiKey, Json, Server, access_to
from orchestrator.session_access import Record

Name = Annotated[str, typer.Argument(metavar="ENGINE", help="HOST:PORT, as `vigil engine served` has it.")]


def served(server: Server = HERE, api_key: ApiKey = None, json: Json = False) -> None:
    """List the engines of a running service: state, sessions, how they keep up."""
    with access_to(server, api_key) as access:
        for told in access.engines():
            _tell(told, json)


def drain(name: Name, server: Server = HERE, api_key: ApiKey = None, json: Json = False) -> None:
    """Give an engine no further session; it is empty when the last one has ended or rolled over."""
    with access_to(server, api_key) as access:
        _tell(access.operate(name, "drain"), json)


def admit(name: Name, server: Server = HERE, api_key: ApiKey = None, json: Json = False) -> None:
    """Let a drained engine take sessions again."""
    with access_to(server, api_key) as access:
        _tell(access.operate(name, "admit"), json)


def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="http://host:port of the engine.")],
    server: Server = HERE,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Let a running service use one engine more, after a check with real requests."""
    with access_to(server, api_key) as access:
        _tell(access.add_engine(url), json)


def remove(name: Name, server: Server = HERE, api_key: ApiKey = None) -> None:
    """Have a running service forget an engine; what is still on it goes on elsewhere. Drain it first."""
    with access_to(server, api_key) as access:
        access.remove_engine(name)
    typer.echo(f"{name} is not used any more")


def line(told: Record) -> str:
    """An engine as people read it."""
    most = told["limit"]
    parts = [f"{told['id']} {told['state']}: {told['sessions']}{f' of {most}' if most else ''} sessions"]
    for figure, text in (("closing", "closing"), ("cold", "being read in anew")):
        if told.get(figure):
            parts.append(f"{told[figure]} {text}")
    for figure, text in (("real_time_factor", "real-time factor"), ("late", "answers in periods, p95:")):
        if told.get(figure):
            parts.append(f"{text} {told[figure]:.2f}")
    if told.get("draining") and "drain" not in told["state"]:
        parts.append("draining")
    return ", ".join(parts)


def _tell(told: Record, json: bool) -> None:
    typer.echo(orjson.dumps(dict(told)).decode() if json else line(told))
