"""What ``--engine`` names: the address of an engine, or a profile to have one started from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine_launch import supervisor
from engine_launch.atomic import Progress, silent
from engine_launch.client import EngineHttp
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.launch import still_answers, up
from engine_launch.profile import base_name, duplex_family, load_profile
from engine_launch.selfcheck import SelfCheck, TagSpec, self_check
from engine_launch.supervisor import Running

TagsForFamily = Callable[[str], TagSpec]
DuplexForFamily = Callable[[str], DuplexSpec | None]
"""What the native profile of a family says; None for a family without one."""


@dataclass(frozen=True, slots=True)
class Connected:
    """An engine that is there, and what its self-check showed.

    :param family: the prompt pack that fits, where it is known (started from a profile)
    :param running: how it was started, where that was done here
    :param started: this call started it
    """

    url: str
    family: str | None
    running: Running | None
    started: bool
    check: SelfCheck


def is_socket(target: str) -> bool:
    """The address of a full-duplex engine's socket."""
    return target.startswith(("ws://", "wss://"))


def is_url(target: str) -> bool:
    return target.startswith(("http://", "https://")) or is_socket(target)


def http_address(target: str) -> str:
    """Where the other routes of an engine are whose socket this is; any other address as it was given."""
    if not is_socket(target):
        return target
    parts = urlsplit(target)
    return f"http{parts.scheme.removeprefix('ws')}://{parts.netloc}"


def duplex_family_at(url: str, api_key: str | None = None) -> str | None:
    """The family of a full-duplex engine, by the models it serves. None: not known.

    :raises Unreachable: it is not there; ``NoAnswer``: it does not tell
    """
    with EngineHttp(url, api_key=api_key, deadline_s=10.0) as engine:
        return duplex_family(str(card["id"]) for card in engine.models())


def connect(
    target: str,
    *,
    tags_for_family: TagsForFamily,
    family: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    progress: Progress = silent,
) -> Connected:
    """The engine at a URL, or the one of a profile (started when it doesn't run), checked.

    :param family: whose tags to learn at a URL; an engine started from a profile knows its own
    Raises ``LaunchError`` when a profile's engine can't be started. A URL that does not answer is no error
    here: see ``check.answered``.
    """
    target = http_address(target)
    running = supervisor.find_by_url(target) if is_url(target) else already_running(target)
    started = False
    if running is None and not is_url(target):
        running, started = up(load_profile(target), progress=progress), True
    known = running.family if running else family
    progress("checking", "real requests that show what the engine can do")
    check = self_check(
        running.url if running else target,
        model=model or (running.model if running else None),
        tags=tags_for_family(known) if known else None,
        launched=running,
        api_key=api_key,
    )
    return Connected(running.url if running else target, known, running, started, check)


def already_running(named: str, duplex: DuplexSpec | None = None) -> Running | None:
    """The engine of a profile, if it runs and answers, with whatever port and settings it was started.

    :param duplex: what a full-duplex one is held to; it is asked with a session, not with a request
    """
    running = supervisor.find(base_name(named))
    if running is None or (":" in named and running.profile != named):
        return None
    return running if still_answers(running, duplex) else None
