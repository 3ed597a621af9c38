"""``vigil load``."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import httpx
import orjson
import typer

from bridges.answers import answered
from evals.load.job import INSIST_S, Job
from orchestrator.exits import Exit
from orchestrator.keys import checked_option
from orchestrator.server_address import checked_server, checked_servers

QUERY = "Say when something happens."
PICTURES = 240
"""Different pictures at most; they are shown again after that."""

LONGEST_S = 86400.0
"""Of anything that is given in seconds."""

WIDTH = 120
ANSWER_S, MOST = 10.0, 4 * 2**20
"""For what is served there, and bytes of it."""


class Shape(StrEnum):
    REALTIME = "realtime"
    CHAT = "chat"


class _Unusable(Exception):
    """What was asked for can't be done. The message says why."""

    exit_code = Exit.USAGE


class _Unseen(_Unusable):
    exit_code = Exit.NO_SOURCE


class _Away(_Unusable):
    exit_code = Exit.ENGINE_UNREACHABLE


def load(
    server: Annotated[
        str, typer.Option(metavar="URL", callback=checked_server, help="A running service.")
    ] = "http://127.0.0.1:8070",
    api_key: Annotated[
        str | None, typer.Option(envvar="VIGIL_SERVER_KEY", callback=checked_option, help="Key for it.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Served model; default: the first one there is.")] = None,
    shape: Annotated[
        Shape,
        typer.Option(help="realtime: Vigil's WebSocket; chat: a completion a frame, as other servers have."),
    ] = Shape.REALTIME,
    sessions: Annotated[
        int | None, typer.Option(min=1, help="Drive so many; default: find how many are carried.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Without --sessions: try at most so many.")] = 512,
    first: Annotated[int, typer.Option(min=1, help="Without --sessions: try so many first.")] = 1,
    frames: Annotated[
        Path | None,
        typer.Option(metavar="PATH", exists=True, help="Video or picture, or a folder of them (scenes too)."),
    ] = None,
    size: Annotated[str, typer.Option(metavar="WxH", help="Of the pictures as they are sent.")] = "512x384",
    speech: Annotated[
        Path | None,
        typer.Option(metavar="IN.wav", exists=True, dir_okay=False, help="What each session hears."),
    ] = None,
    query: Annotated[str, typer.Option(metavar="TEXT", help="What each session is asked.")] = QUERY,
    fill: Annotated[
        int, typer.Option(min=0, help="Frames of a full window; sessions begin at all stages.")
    ] = 0,
    warm: Annotated[
        float, typer.Option(min=0.0, max=LONGEST_S, metavar="S", help="At full pace before it counts.")
    ] = 5.0,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, metavar="S", help="Measured, of each step.")
    ] = 20.0,
    bound: Annotated[
        list[float] | None,
        typer.Option(
            min=0.01,
            max=LONGEST_S,
            metavar="S",
            help="Of the p95; repeatable; default: one period, and 0.5 s.",
        ),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", callback=checked_servers, help="An engine behind it: its own figures are told."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures here as JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Drive real sessions at their real pace, and tell how many a service carries.

    Each session shows a frame a period; latency is from its sending to its decision. A number of sessions is
    carried when all were let in, none was lost and the p95 stays within the bound. The load comes from a
    process of its own; where that is late itself, its figures are marked with "!". Those of a step whose
    engines were still busy a minute after its windows were filled are marked with "~".
    """
    from rich.console import Console

    # A table has its width where nobody looks at it, too.
    console = Console(stderr=json)
    if not console.is_terminal:
        console.width = WIDTH
    try:
        width, height = _size(size)
        if out is not None and (out.is_dir() or not out.parent.is_dir()):
            raise _Unusable(f"can't write {out}: it is a folder, or in none")
        told = asyncio.run(
            _run(
                console,
                Job(
                    url=server.rstrip("/"),
                    shape=shape.value,
                    sessions=sessions or most,
                    insist_s=0.0 if sessions else INSIST_S,
                    pictures="",
                    query=query,
                    period_s=1.0,
                    seconds=seconds,
                    warm_s=warm,
                    fill=fill,
                    model=model,
                    api_key=api_key,
                    sound=str(speech) if speech else None,
                    mark=f"{time.time_ns():x}",
                ),
                _Wanted(
                    sessions, most, first, frames, (width, height), tuple(bound or ()), tuple(engine or ())
                ),
            )
        )
    except _Unusable as unusable:
        _fail(str(unusable), unusable.exit_code)
    except asyncio.CancelledError:
        raise typer.Exit(Exit.TERMINATED) from None
    text = orjson.dumps(told, option=orjson.OPT_INDENT_2).decode() + "\n"
    if json:
        sys.stdout.write(text)
    if out is not None:
        try:
            out.write_text(text)
        except OSError as error:
            _fail(f"can't write {out}: {error.strerror}", Exit.FAILED)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """:param sessions: drive exactly so many; otherwise they are searched for up to ``most``"""

    sessions: int | None
    most: int
    first: int
    frames: Path | None
    size: tuple[int, int]
    bounds: tuple[float, ...]
    engines: tuple[str, ...]


async def _run(console: Any, job: Job, wanted: _Wanted) -> dict[str, Any]:
    from evals.load.capacity import capacities, table
    from evals.load.figures import Scraper
    from evals.load.step import Generator, GeneratorFailed, Step, step

    _heed_termination()
    with tempfile.TemporaryDirectory(prefix="vigil-load-") as folder:
        served = await _served(job)
        job = replace(
            job,
            model=job.model or served.get("id"),
            period_s=_period_s(served),
            pictures=folder,
            extra=_extra(job, served),
        )
        count = await asyncio.to_thread(_prepare, wanted, Path(folder), job.period_s)
        bounds = wanted.bounds or tuple(dict.fromkeys((job.period_s, 0.5)))
        scraper = Scraper(job.url, wanted.engines, job.api_key)
        generator = await Generator.start(job)

        async def tried(sessions: int) -> Step:
            begun = time.monotonic()
            made = await step(generator, sessions, scraper)
            p95 = made.plain(bounds)["p95_ms"]
            said = f"{sessions} sessions: p95 {'-' if p95 is None else f'{p95:g} ms'}"
            console.print(f"{said} ({time.monotonic() - begun:.0f} s)", style="dim", highlight=False)
            return made

        try:
            if wanted.sessions is not None:
                told: dict[str, Any] = {"steps": [(await tried(wanted.sessions)).plain(bounds)]}
            else:
                told = await capacities(tried, bounds, wanted.most, first=wanted.first)
        except GeneratorFailed as failed:
            raise _Unusable(str(failed)) from failed
        finally:
            await generator.aclose()
            await scraper.aclose()
    console.print(table(told["steps"]))
    for limit, sessions in told.get("capacity", {}).items():
        least = "" if told["bounded"][limit] else " or more"
        console.print(f"carries {sessions}{least} sessions with a p95 of at most {limit} s", highlight=False)
    return {
        "load": {
            "shape": job.shape,
            "model": job.model,
            "period_s": job.period_s,
            "pictures": {"count": count, "size": list(wanted.size)},
            "fill": job.fill,
            "warm_s": job.warm_s,
            "seconds": job.seconds,
            "speech": job.sound is not None,
        },
        **told,
    }


def _heed_termination() -> None:
    """SIGTERM ends it in order, as Ctrl-C does: sessions are closed and pictures removed."""
    task = asyncio.current_task()
    # In another thread than the first one whoever runs us ends us.
    if task is not None and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _served(job: Job) -> dict[str, Any]:
    """The model entry of the server; nothing where it has no such list."""
    headers = {"authorization": f"Bearer {job.api_key}"} if job.api_key else None
    try:
        async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=ANSWER_S) as http:
            status, told = await answered(http, "GET", job.url + "/v1/models", within_s=ANSWER_S, most=MOST)
    except (httpx.HTTPError, httpx.InvalidURL) as away:
        raise _Away(
            f"can't reach {job.url}: {str(away) or type(away).__name__}; is vigil serve running there?"
        ) from away
    if status in (401, 403):
        raise _Unusable(f"{job.url} wants another key: --api-key")
    try:
        entries = orjson.loads(told)["data"]
        entry: dict[str, Any] = next((e for e in entries if job.model in (None, e["id"])), {})
    except (ValueError, LookupError, TypeError):
        return {}
    return entry


def _period_s(served: dict[str, Any]) -> float:
    told = served.get("chunk_period_ms") or 1000
    if not isinstance(told, int | float) or not 1 <= told <= 3_600_000:
        raise _Unusable(f"its model has a period of {told!r} ms; that is none")
    return told / 1000


def _extra(job: Job, served: dict[str, Any]) -> dict[str, Any]:
    if job.sound is None:
        return {}
    hears = served.get("audio_input")
    if job.shape != Shape.REALTIME or not hears:
        raise _Unusable("--speech: this server's sessions do not hear")
    if hears["format"] != "pcm16":
        raise _Unusable(f"--speech: its model takes {hears['format']}, not pcm16")
    return {"sound_rate_hz": hears["rate_hz"]}


def _prepare(wanted: _Wanted, folder: Path, period_s: float) -> int:
    from evals.clips import ClipMissing, clip
    from evals.load.pictures import NoPictures, prepare

    try:
        if wanted.frames is not None:
            return prepare(wanted.frames, folder, wanted.size, period_s, PICTURES)
        # The packaged clip is short: every frame of it counts as a second.
        return prepare(clip("bikes.mp4"), folder, wanted.size, 0.0, PICTURES)
    except (NoPictures, ClipMissing) as missing:
        raise _Unseen(f"{missing}; name a video or a folder with --frames") from missing


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit() and 28 <= int(width) <= 4096 and 28 <= int(height) <= 4096):
        raise _Unusable("--size is written as 512x384")
    return int(width), int(height)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"vigil: {message}", err=True)
    raise typer.Exit(code)
