"""How many sessions one engine carries: clients of the known layout against Vigil, in one run.

``make bench-sessions``, or ``python -m evals.bench.sessions_bench --engine URL|PROFILE --out FILE``

The same frames, system prompt and windows (100 frames, at all stages of filling) go to the same engine as

- ``resend`` and ``uuid``: clients of the known layout, see ``evals.bench.known_layout``
- ``vigil``: ``vigil serve`` as shipped, over its WebSocket, memory and all

each at a frame a period and session, with a load generator in a process of its own. A number of sessions is
carried when the p95 from frame to decision stays within one period, or within 0.5 s. Then twice the
capacity is offered to a fresh ``vigil serve``: the sessions that were there first are measured before, while
others come, and after those have left (``evals.bench.overload``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.bench.machine import engine_told, machine
from evals.bench.overload import overloaded
from evals.bench.stand import serving, stop
from evals.clips import clip
from evals.load.capacity import capacities, table
from evals.load.figures import Scraper
from evals.load.job import Job
from evals.load.pictures import prepare
from evals.load.step import MODULE, Step, step
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


@dataclass(frozen=True, slots=True)
class Design:
    """What is measured.

    :param size: of the frames, width and height in pixels
    :param window: frames of a full one
    :param first: sessions to begin with; ``most``: at most; ``within``: how near is near enough
    """

    size: tuple[int, int] = (320, 256)
    window: int = 100
    seconds: float = 10.0
    warm_s: float = 2.0
    first: int = 4
    most: int = 128
    within: float = 0.1


Tell = Callable[[str], None]


class Bench:
    """:param folder: for pictures, and the service's data and log"""

    def __init__(self, settings: Settings, engine: Engine, folder: Path, tell: Tell, design: Design) -> None:
        self._persona, self._language = settings.persona, settings.language
        self._engine, self._folder, self._tell, self._design = engine, folder, tell, design
        self._period_s = engine.pack.period_ms / 1000
        self._bounds = (self._period_s, HALF_S)
        self._mark = f"{time.time_ns():x}"

    async def run(self) -> dict[str, Any]:
        """``arms`` by name, ``ratios`` by bound, ``overload``."""
        pictures = self._folder / "pictures"
        pictures.mkdir()
        prepare(clip("bikes.mp4"), pictures, self._design.size, 0.0, 240)
        arms = {arm: await self._capacity(arm, self._job(arm)) for arm in ARMS[:2]}
        async with self._served("one") as url:
            arms["vigil"] = await self._capacity("vigil", replace(self._job("realtime"), url=url))
        sessions = max(1, arms["vigil"]["capacity"][f"{self._period_s:g}"])
        async with self._served("two") as url:
            job = replace(self._job("realtime"), url=url, sessions=sessions)
            overload = await overloaded(job, self._engine.url, self._period_s, self._tell)
        return {"arms": arms, "ratios": ratios(arms), "overload": overload}

    @asynccontextmanager
    async def _served(self, name: str) -> AsyncIterator[str]:
        folder = self._folder / name
        folder.mkdir()
        flags = ("--family", self._engine.pack.family, *FLAGS)
        async with serving(folder, self._engine.url, flags) as (server, url, _):
            yield url
            await stop(server)

    async def _capacity(self, arm: str, job: Job) -> dict[str, Any]:
        scraper = Scraper(job.url, [self._engine.url])
        module = MODULE if job.shape == "realtime" else LAYOUTS

        async def tried(sessions: int) -> Step:
            begun = time.monotonic()
            mark = f"{self._mark}.{arm}.{sessions}"
            made = await step(replace(job, sessions=sessions, mark=mark), scraper, module)
            plain = made.plain(self._bounds)
            took = time.monotonic() - begun
            self._tell(f"{arm}, {sessions} sessions: p95 {plain['p95_ms']} ms ({took:.0f} s)")
            return made

        design = self._design
        try:
            return await capacities(
                tried, self._bounds, design.most, first=design.first, within=design.within
            )
        finally:
            await scraper.aclose()

    def _job(self, shape: str) -> Job:
        engine, design = self._engine, self._design
        pack, room = engine.pack, engine.facts.image_cache_bytes
        width, height = design.size
        return Job(
            url=engine.url,
            shape=shape,
            sessions=0,
            pictures=str(self._folder / "pictures"),
            query=QUERY,
            period_s=self._period_s,
            seconds=design.seconds,
            warm_s=design.warm_s,
            fill=design.window,
            model=engine.facts.model,
            extra={
                "system": pack.persona(self._persona, self._language),
                "silence": pack.tags.silence,
                "window": design.window,
                "params": {
                    **pack.decide.params,
                    "max_tokens": pack.decide.max_tokens,
                    "skip_special_tokens": False,
                },
                "held_images": max(1, (room or 4 * 2**30) // image_bytes(width * height)),
            },
        )


def ratios(arms: dict[str, Any]) -> dict[str, Any]:
    """Vigil's capacity over the others', by bound; ``None`` where the other carries nobody."""
    told: dict[str, Any] = {}
    for bound, ours in arms["vigil"]["capacity"].items():
        others = {arm: arms[arm]["capacity"][bound] for arm in ARMS[:2]}
        told[bound] = {arm: round(ours / other, 2) if other else None for arm, other in others.items()}
    return told


def goals(result: dict[str, Any]) -> dict[str, bool]:
    """What a regression would break on any machine."""
    overload = result["overload"]
    least = all(ratio is None or ratio >= 1 for each in result["ratios"].values() for ratio in each.values())
    return {"as many sessions as either layout at each bound": least, **overload["checks"]}


def show(result: dict[str, Any], console: Console) -> None:
    for arm in ARMS:
        console.print(arm, style="bold")
        console.print(table(result["arms"][arm]["steps"]))
    for bound, each in result["ratios"].items():
        carried = ", ".join(f"{arm} {result['arms'][arm]['capacity'][bound]}" for arm in ARMS)
        times = ", ".join(f"{ratio}x {arm}" for arm, ratio in each.items() if ratio is not None)
        console.print(f"p95 of at most {bound} s: {carried} sessions ({times})", highlight=False)
    console.print_json(data=result["overload"])
    for goal, met in result["goals"].items():
        console.print(f"{'met' if met else 'MISSED'}: {goal}", highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="sessions_bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", help="URL or profile; default: the settings'")
    parser.add_argument("--size", help="WxH of the frames; default: 320x256")
    parser.add_argument("--most", type=int, help="sessions at most")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    console = Console()
    design = Design()
    if arguments.size:
        width, _, height = arguments.size.partition("x")
        design = replace(design, size=(int(width), int(height)))
    if arguments.most:
        design = replace(design, most=arguments.most)

    def tell(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    try:
        settings = settings_of(ReplayOptions(source="", out=Path(), engine=arguments.engine))
        with (
            engine_of(settings, tell) as engine,
            tempfile.TemporaryDirectory(prefix="vigil-bench-") as folder,
        ):
            measured = asyncio.run(Bench(settings, engine, Path(folder), tell, design).run())
            facts = engine_told(engine.facts.to_dict())
    except ReplayError as error:
        console.print(f"sessions_bench: {error.message}", style="red", markup=False, highlight=False)
        return error.exit_code
    where = {"bench": "sessions", "machine": machine(), "engine": facts, "design": asdict(design)}
    result = {**where, **measured, "goals": goals(measured)}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result, console)
    return 0 if all(result["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
