"""``vigil engine served|drain|admit``: the engines behind a running service."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from orchestrator.attach_cli import HERE, ApiKey, Json, Server, access_to
from orchestrator.session_access import Record

Name = Annotated[str, typer.Argument(metavar="ENGINE", help="HOST:PORT, as `vigil engine served` has it.")]


def served(server: Server = HERE, api_key: ApiKey = None, json: Json = False) -> None:
    """List the full-duplex engines of a running service: state, sessions, how they keep up."""
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


def line(told: Record) -> str:
    """An engine as people read it."""
    parts = [f"{told['id']} {told['state']}: {told['sessions']} of {told['limit']} sessions"]
    if told["closing"]:
        parts.append(f"{told['closing']} closing")
    if told["real_time_factor"]:
        parts.append(f"real-time factor {told['real_time_factor']:.2f}")
    return ", ".join(parts)


def _tell(told: Record, json: bool) -> None:
    typer.echo(orjson.dumps(dict(told)).decode() if json else line(told))
