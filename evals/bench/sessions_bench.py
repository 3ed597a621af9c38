"""How many sessions one engine carries: clients of the known layout against Vigil, in one run.

``make bench-sessions``, or ``python -m evals.bench.sessions_bench --engine URL|PROFILE --out FILE``

The same frames, system prompt and windows (as many frames as a chunk of the pack has, at all stages of
filling) go to the same engine as

- ``resend`` and ``uuid``: clients of the known layout, see ``evals.bench.known_layout``
- ``vigil``: ``vigil serve`` as shipped, over its WebSocket, memory and all

each at a frame a period and session, with a load generator in a process of its own. A number of sessions is
carried when the p95 from frame to decision stays within one period, or within 0.5 s. Then twice the
capacity is offered to a fresh ``vigil serve``: the sessions that were there first are measured before, while
others come, and after those have left (``evals.bench.overload``).

For an engine with dummy weights ``--forced`` says what is answered (``evals.bench.forced``), alike in all
arms; that Vigil ends an answer at the silence tag, where the others read on to its end, is left as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.bench.forced import ANSWERS, CannotForce, forced
from evals.bench.machine import engine_told, machine
from evals.bench.overload import overloaded
from evals.bench.stand import serving, stop
from evals.clips import clip
from evals.load.capacity import capacities, ladder, table
from evals.load.figures import Scraper
from evals.load.job import INSIST_S, Job
from evals.load.pictures import prepare
from evals.load.step import MODULE, Generator, Step, step
from evals.replay.core import engine_of, settings_of
from evals.replay.options import ReplayError, ReplayOptions
from orchestrator.engine_fit import image_bytes
from orchestrator.engine_setup import Engine
from orchestrator.settings import Settings

ARMS = ("resend", "uuid", "vigil")
LAYOUTS = "evals.bench.known_layout"
QUERY = "Tell me what happens in front of the camera."
HALF_S = 0.5
FLAGS = (
    *("--voice-bridge", "none"),
    *("--limits-sessions", "1000", "--auth-quota-handshakes-per-minute", "100000"),
)
"""So that nothing but admission refuses a session."""
GUESTS, GUESTS_S = 16, 5.0
"""Sessions for each engine that come and go before Vigil is measured, for so long: admission learns from
those who left how heads grow, and thinks of hours of memory before."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is measured.

    :param size: of the frames, width and height in pixels
    :param window: frames of a full one; ``None``: a chunk's, by the pack
    :param head: words of a text at the beginning of each session's prompts
    :param answers: see ``evals.bench.forced``; ``None``: the model's own
    :param first: sessions to begin with; ``most``: at most; ``within``: how near is near enough
    :param tried: numbers of sessions, in place of a search for the largest
    :param arms: to measure
    :param overload: offer twice the capacity
    """

    size: tuple[int, int] = (320, 256)
    window: int | None = None
    head: int = 0
    answers: str | None = None
    seconds: float = 25.0
    warm_s: float = 2.0
    first: int = 4
    most: int = 128
    within: float = 0.1
    tried: tuple[int, ...] = ()
    arms: tuple[str, ...] = ARMS
    overload: bool = True


Tell = Callable[[str], None]


class Bench:
    """:param engine: checked; ``engines``: addresses of all that sessions are spread over, its own among them
    :param family: name or folder of the engine's pack
    :param folder: for pictures, and the service's data and log"""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        engines: Sequence[str],
        family: str,
        folder: Path,
        tell: Tell,
        design: Design,
    ) -> None:
        self._persona, self._language = settings.persona, settings.language
        self._family, self._engines = family, engines
        self._engine, self._folder, self._tell, self._design = engine, folder, tell, design
        self._period_s = engine.pack.period_ms / 1000
        self._bounds = (self._period_s, HALF_S)
        self._mark = f"{time.time_ns():x}"

    async def run(self, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """``arms`` by name, ``ratios`` by bound, ``overload``. ``keep``: told of each arm."""
        pictures = self._folder / "pictures"
        pictures.mkdir()
        prepare(clip("bikes.mp4"), pictures, self._design.size, 0.0, 240)
        arms: dict[str, Any] = {}
        first = self._design.first
        for arm in self._design.arms:
            if arm == "vigil":
                async with self._served("one") as url:
                    job = replace(self._job("realtime"), url=url)
                    arms[arm] = await self._capacity(arm, job, first)
            else:
                arms[arm] = await self._capacity(arm, self._job(arm), first)
            # Each is expected to carry what the one before it does.
            first = max(first, *arms[arm]["capacity"].values())
            measured = {"arms": arms, "ratios": ratios(arms) if "vigil" in arms else {}}
            keep(measured)
        if not self._design.overload:
            return measured
        sessions = max(1, arms["vigil"]["capacity"][f"{self._period_s:g}"])
        async with self._served("two") as url:
            job = replace(self._job("realtime"), url=url, sessions=sessions)
            overload = await overloaded(job, self._engine.url, self._period_s, self._tell)
        return measured | {"overload": overload}

    @asynccontextmanager
    async def _served(self, name: str) -> AsyncIterator[str]:
        folder = self._folder / name
        folder.mkdir()
        flags = ("--family", self._family, *FLAGS)
        async with serving(folder, ",".join(self._engines), flags) as (server, url, _):
            yield url
            await stop(server)

    async def _capacity(self, arm: str, job: Job, first: int) -> dict[str, Any]:
        scraper = Scraper(job.url, self._engines)
        module = MODULE if job.shape == "realtime" else LAYOUTS
        job = replace(job, mark=f"{self._mark}.{arm}", insist_s=INSIST_S)
        generator = await Generator.start(job, module)

        async def tried(sessions: int) -> Step:
            begun = time.monotonic()
            made = await step(generator, sessions, scraper)
            plain = made.plain(self._bounds)
            took = time.monotonic() - begun
            self._tell(f"{arm}, {sessions} sessions: p95 {plain['p95_ms']} ms ({took:.0f} s)")
            return made

        design = self._design
        try:
            if arm == "vigil":
                await self._come_and_go(job)
            if design.tried:
                return await ladder(tried, self._bounds, design.tried)
            return await capacities(tried, self._bounds, design.most, first=first, within=design.within)
        finally:
            await generator.aclose()
            await scraper.aclose()

    async def _come_and_go(self, job: Job) -> None:
        short = replace(job, mark=f"{job.mark}.guests", fill=0, warm_s=0.0, seconds=GUESTS_S)
        guests = await Generator.start(short)
        try:
            if await guests.ready(GUESTS * len(self._engines)):
                await guests.begin()
            await guests.end()
        finally:
            await guests.aclose()

    def _job(self, shape: str) -> Job:
        engine, design = self._engine, self._design
        pack, room = engine.pack, engine.facts.image_cache_bytes
        window = pack.chunk_frames if design.window is None else design.window
        width, height = design.size
        return Job(
            url=engine.url,
            shape=shape,
            sessions=design.most,
            pictures=str(self._folder / "pictures"),
            query=QUERY,
            period_s=self._period_s,
            seconds=design.seconds,
            warm_s=design.warm_s,
            fill=window,
            head=design.head,
            model=engine.facts.model,
            extra={
                "system": pack.persona(self._persona, self._language),
                "silence": pack.tags.silence,
                "window": window,
                "params": {
                    **pack.decide.params,
                    "max_tokens": pack.decide.max_tokens,
                    "skip_special_tokens": False,
                },
                "engines": list(self._engines),
                "held_images": max(1, (room or 4 * 2**30) // image_bytes(width * height)),
            },
        )


def ratios(arms: dict[str, Any]) -> dict[str, Any]:
    """Vigil's capacity over the others', by bound; ``None`` where the other carries nobody."""
    told: dict[str, Any] = {}
    for bound, ours in arms["vigil"]["capacity"].items():
        others = {arm: found["capacity"][bound] for arm, found in arms.items() if arm != "vigil"}
        told[bound] = {arm: round(ours / other, 2) if other else None for arm, other in others.items()}
    return told


def goals(result: dict[str, Any]) -> dict[str, bool]:
    """What a regression would break on any machine."""
    least = all(ratio is None or ratio >= 1 for each in result["ratios"].values() for ratio in each.values())
    overload = result.get("overload", {"checks": {}})
    return {"as many sessions as either layout at each bound": least, **overload["checks"]}


def show(result: dict[str, Any], console: Console) -> None:
    for arm, found in result["arms"].items():
        console.print(arm, style="bold")
        console.print(table(found["steps"]))
    for bound, each in result["ratios"].items():
        carried = ", ".join(f"{arm} {found['capacity'][bound]}" for arm, found in result["arms"].items())
        times = ", ".join(f"{ratio}x {arm}" for arm, ratio in each.items() if ratio is not None)
        console.print(f"p95 of at most {bound} s: {carried} sessions ({times})", highlight=False)
    if "overload" in result:
        console.print_json(data=result["overload"])
    for goal, met in result["goals"].items():
        console.print(f"{'met' if met else 'MISSED'}: {goal}", highlight=False)


def _design(arguments: argparse.Namespace) -> Design:
    given = {
        name: value
        for name in ("most", "first", "head", "window", "seconds", "arms", "tried")
        if (value := getattr(arguments, name)) is not None
    }
    if "tried" in given:
        given["tried"] = tuple(given["tried"])
    if "arms" in given:
        given["arms"] = tuple(arm for arm in ARMS if arm in given["arms"])
    if arguments.size:
        width, _, height = arguments.size.partition("x")
        given["size"] = (int(width), int(height))
    return replace(Design(), **given, answers=arguments.forced, overload=not arguments.no_overload)


def main() -> int:
    parser = argparse.ArgumentParser(prog="sessions_bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", help="URL or profile; default: the settings'")
    parser.add_argument("--size", help="WxH of the frames; default: 320x256")
    parser.add_argument("--most", type=int, help="sessions at most")
    parser.add_argument("--first", type=int, help="sessions to begin with")
    parser.add_argument(
        "--head", type=int, help="words at the beginning of each session's prompts; default: 0"
    )
    parser.add_argument("--window", type=int, help="frames of a full window; default: a chunk's, by the pack")
    parser.add_argument("--seconds", type=float, help="that a step is measured; default: 25")
    parser.add_argument("--tried", type=int, nargs="+", help="these numbers of sessions, and no search")
    parser.add_argument("--beside", nargs="+", default=[], help="URLs of engines beside the one of --engine")
    parser.add_argument("--family", help="the engine's prompt pack, where its name does not tell")
    parser.add_argument("--forced", choices=ANSWERS, help="what an engine with dummy weights answers")
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="default: all")
    parser.add_argument("--no-overload", action="store_true", help="do not offer twice the capacity")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    console = Console()
    design = _design(arguments)
    if design.overload and "vigil" not in design.arms:
        parser.error("twice the capacity is offered to Vigil: --no-overload without that arm")

    def tell(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    result: dict[str, Any] = {}
    try:
        settings = settings_of(
            ReplayOptions(source="", out=Path(), engine=arguments.engine, family=arguments.family)
        )
        with (
            engine_of(settings, tell) as engine,
            tempfile.TemporaryDirectory(prefix="vigil-bench-") as folder,
        ):
            engines = (engine.url, *arguments.beside)
            told = {"engine": engine_told(engine.facts.to_dict()), "engines": len(engines)}
            where = {"bench": "sessions", "machine": machine(), **told}

            def keep(measured: dict[str, Any]) -> None:
                result.update({**where, "design": asdict(design), **measured, "goals": goals(measured)})
                if arguments.out is not None:
                    arguments.out.write_text(json.dumps(result, indent=2) + "\n")

            family = settings.family or engine.pack.family
            if design.answers is not None:
                pack = forced(engine, family, Path(folder), design.answers, design.size)
                engine, family = replace(engine, pack=pack), f"{folder}/pack"
            bench = Bench(settings, engine, engines, family, Path(folder), tell, design)
            keep(asyncio.run(bench.run(keep)))
    except ReplayError as error:
        console.print(f"sessions_bench: {error.message}", style="red", markup=False, highlight=False)
        return error.exit_code
    except CannotForce as error:
        console.print(f"sessions_bench: {error}", style="red", markup=False, highlight=False)
        return 2
    show(result, console)
    return 0 if all(result["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
