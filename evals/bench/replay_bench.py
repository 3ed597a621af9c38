"""Our replay against other ways to ask an engine: one run, one engine, the same frames.

``make bench-replay``, or ``python -m evals.bench.replay_bench --engine URL|PROFILE --out FILE``; with
``--paths`` only the ways in which pictures travel once are compared: prompts as ids, and as messages.

A session is watched from its first frame to its hundredth. At every tick the session core decides first; the
rivals then ask for the same decision from the same prompt (``evals.bench.arms``). Measured are the ten ticks
up to each point of 10, 50 and 100 frames in the window; three sessions give 30 ticks a point and arm, taken
in turns. All rivals but the one without a cache ask at every tick, as they would, so that their caches are
warm. Ours is charged for
everything between the frame at hand and the decision complete; the rivals for building and sending the
request and reading its answer, but not for checking or keeping frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bridges.chat_engine import VllmChat
from evals.bench.arms import ARMS, PATHS, FrontEnd, Rival, Sample, Tap
from evals.bench.forced import ANSWERS, CannotForce, forced
from evals.bench.machine import engine_told, machine
from evals.bench.pictures import clip_pictures
from evals.load.heads import head
from evals.replay.core import engine_of, open_local, settings_of
from evals.replay.options import ReplayError, ReplayOptions
from evals.stats import percentile
from orchestrator.app import Core
from orchestrator.engine_fit import token_route
from orchestrator.engine_setup import Engine
from orchestrator.replay_track import ReplayTrack
from orchestrator.runtime.actor import Session
from orchestrator.session.commands import AppendInput, AskQuery
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.settings import Settings

QUERY = "Tell me what happens in front of the camera."
TICK_S = 120.0


@dataclass(frozen=True, slots=True)
class Design:
    """What is measured.

    :param points: frames in the window at which the arms are compared, ascending
    :param span: ticks up to each point that are measured, in every session
    :param size: of the frames, width and height in pixels
    :param head: words of a text at the beginning of each session's prompts
    :param arms: see ``evals.bench.arms``
    """

    points: tuple[int, ...] = (10, 50, 100)
    span: int = 10
    sessions: int = 3
    warm_ticks: int = 12
    size: tuple[int, int] = (448, 448)
    head: int = 0
    arms: tuple[str, ...] = ARMS

    def point_of(self, frames: int) -> int | None:
        """The point whose span holds a window of so many frames."""
        return next((p for p in self.points if p - self.span < frames <= p), None)


DESIGN = Design()
GOAL_BEST, GOAL_NO_CACHE, GOAL_IDS = 1.05, 8.0, 0.95
"""Ours is at most this many times the better of the resending rivals, and at 100 frames this many times as
fast as the one without a cache. Messages take at least this share of what ids take of the front end."""

Samples = dict[int, dict[str, list[Sample]]]


def result_of(samples: Samples, facts: dict[str, Any], design: Design = DESIGN) -> dict[str, Any]:
    """The bench's JSON: per point and arm p50 and p95 in ms and median counts; ratios; goals met.

    ``last_to_first``: how many times as long as at the first point a tick of ours takes at the last one.
    """
    points: list[dict[str, Any]] = []
    for point, arms in samples.items():
        figures = {arm: _figures(each) for arm, each in arms.items()}
        others = [figures[arm]["p50_ms"] for arm in ("resend", "no_cache") if arm in figures]
        ours = figures["ours"]["p50_ms"]
        points.append(
            {
                "frames": point,
                "arms": figures,
                "ours_to_best_other": round(ours / min(others), 3) if others else None,
                "no_cache_to_ours": _ratio(others[-1], ours) if others else None,
                "uuids_to_ids": {
                    figure: _ratio(figures["uuids"][figure], figures["ids"][figure])
                    for figure in ("p50_ms", "front_ms")
                },
            }
        )
    goals = {
        "ids take no more of the engine's front end than messages at any point": all(
            (p["uuids_to_ids"]["front_ms"] or 1.0) >= GOAL_IDS for p in points
        )
    }
    if all(p["no_cache_to_ours"] for p in points):
        goals |= {
            f"ours at most {GOAL_BEST}x the best resending one at every point": all(
                p["ours_to_best_other"] <= GOAL_BEST for p in points
            ),
            f"ours at least {GOAL_NO_CACHE:g}x as fast as no cache at {points[-1]['frames']} frames": (
                points[-1]["no_cache_to_ours"] >= GOAL_NO_CACHE
            ),
        }
    ours = [point["arms"]["ours"]["p50_ms"] for point in points]
    return {
        "bench": "replay",
        "machine": machine(),
        "engine": facts,
        "design": {"size": design.size, "head": design.head, "sessions": design.sessions},
        "points": points,
        "last_to_first": _ratio(ours[-1], ours[0]),
        "goals": goals,
    }


def _figures(samples: Sequence[Sample]) -> dict[str, Any]:
    def median(name: str) -> int:
        return round(percentile([getattr(s, name) for s in samples], 0.5) or 0)

    times = [s.ms for s in samples]
    fronts = [s.front_ms for s in samples if s.front_ms is not None]
    return {
        "ticks": len(samples),
        "p50_ms": round(percentile(times, 0.5) or 0.0, 1),
        "p95_ms": round(percentile(times, 0.95) or 0.0, 1),
        "front_ms": round(percentile(fronts, 0.5) or 0.0, 1) if fronts else None,
        "prompt_tokens": median("prompt_tokens"),
        "cached_tokens": median("cached_tokens"),
        "completion_tokens": median("completion_tokens"),
        "body_bytes": median("body_bytes"),
    }


def _ratio(one: float | None, other: float | None) -> float | None:
    return round(one / other, 2) if one and other else None


def show(result: dict[str, Any], console: Console) -> None:
    where, (width, height) = result["machine"], result["design"]["size"]
    console.print(
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gb']} GB, Python {where['python']}, "
        f"vigil {where['vigil']}; engine {result['engine'].get('version') or '-'} with "
        f"{result['engine'].get('model') or '-'}; frames {width}x{height}",
        soft_wrap=True,
        highlight=False,
    )
    counts = ("prompt", "cached", "reply", "body kB", "to ours")
    table = Table("frames", "arm", "ticks", "p50 ms", "p95 ms", "front ms", *counts)
    for point in result["points"]:
        ours = point["arms"]["ours"]["p50_ms"]
        for arm, f in point["arms"].items():
            cells = (
                point["frames"],
                arm,
                f["ticks"],
                f["p50_ms"],
                f["p95_ms"],
                f["front_ms"],
                f["prompt_tokens"],
            )
            rest = (f["cached_tokens"], f["completion_tokens"], round(f["body_bytes"] / 1000))
            table.add_row(
                *map(str, (*cells, *rest)),
                f"{f['p50_ms'] / ours:.2f}x",
                end_section=arm == [*point["arms"]][-1],
            )
    console.print(table)
    for goal, met in result["goals"].items():
        console.print(f"{'met' if met else 'MISSED'}: {goal}", highlight=False)


async def measure(settings: Settings, engine: Engine, tell: Callable[[str], None], design: Design) -> Samples:
    """Run the sessions and gather the samples of every point and arm."""
    # Room for the whole run in one chunk, whatever a session's first chunk is lengthened or shortened by.
    pack = replace(engine.pack, chunk_frames=2 * design.points[-1])
    core = await open_local(settings, replace(engine, pack=pack))
    assert isinstance(core.track, ReplayTrack)
    host = core.track.hosts.fleet.hosts[0]
    tap = Tap(host.chat, pack.decide.max_tokens)
    host.chat = tap
    mark = time.time_ns()
    shown = clip_pictures(design.size, design.warm_ticks + design.sessions * design.points[-1], mark)
    samples: Samples = {point: {arm: [] for arm in design.arms} for point in design.points}
    front = FrontEnd(engine.url)
    rivals = {arm: rival for arm, rival in _rivals(engine, front).items() if arm in design.arms}
    try:
        for number in range(-1, design.sessions):
            warming = number < 0
            first, step = (0, 1) if warming else (design.warm_ticks + number, design.sessions)
            own = shown[first::step][: design.warm_ticks if warming else design.points[-1]]
            config = replace(core.defaults, instructions=head(str(mark), number, design.head) or None)
            session = await core.open_session(config)
            await _session(core, session, tap, rivals, front, own, design, None if warming else samples)
            tell("warmed up" if warming else f"session {number + 1} of {design.sessions} done")
    finally:
        for rival in rivals.values():
            await rival.aclose()
        await core.aclose()
    return samples


def _rivals(engine: Engine, front: FrontEnd) -> dict[str, Rival]:
    """In the order in which they ask."""
    url, model = engine.url, engine.facts.model
    route = token_route(engine.facts.tokens)
    return {
        "ids": Rival("ids", "bench-ids", VllmChat(url, model, token_route=route), front, named=True),
        "uuids": Rival("uuids", "bench-uuids", VllmChat(url, model), front, named=True),
        "resend": Rival("resend", "bench-resend", VllmChat(url, model, uuid_parts=False), front),
        "no_cache": Rival("no_cache", None, VllmChat(url, model, uuid_parts=False), front),
    }


async def _session(
    core: Core,
    session: Session,
    tap: Tap,
    rivals: Mapping[str, Rival],
    front: FrontEnd,
    pictures: Sequence[bytes],
    design: Design,
    samples: Samples | None,
) -> None:
    """One session from its first frame on; measured where its window is near a point."""
    await session.submit(AskQuery(text=QUERY, operation_id="query"))
    for n, picture in enumerate(pictures, start=1):
        unit = InputUnit(frames=(FrameInput(picture, n * core.track.offer.period_ms),), lossless=True)
        spent, began = front.spent_ms(), time.perf_counter()
        outcome = await session.operation(AppendInput(operation_id=f"frame-{n}", unit=unit), TICK_S)
        took = (time.perf_counter() - began) * 1000
        asked, row = tap.take(), outcome.record
        if row["status"] != "completed" or row["window_frames"] != n:
            raise RuntimeError(f"tick {n} is not what was to be measured: {dict(row)}")
        counts = (
            row["prompt_tokens"],
            row["cached_tokens"] or 0,
            row["completion_tokens"],
            row["body_bytes"],
        )
        taken = {"ours": Sample(took, *counts, front.since(spent))}
        point = design.point_of(n)
        for arm, rival in rivals.items():
            # Far from a point only the arms that keep a cache warm ask.
            if arm != "no_cache" or point is not None or samples is None:
                taken[arm] = await rival.ask(asked)
        if samples is not None and point is not None:
            for arm, sample in taken.items():
                samples[point][arm].append(sample)
    await session.close("bench_done")


def main() -> int:
    parser = argparse.ArgumentParser(prog="replay_bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", default="programmed-cpu", help="URL or profile (default: %(default)s)")
    parser.add_argument("--paths", action="store_true", help="compare prompts as ids with messages alone")
    parser.add_argument("--sessions", type=int, default=DESIGN.sessions, help="default: %(default)s")
    parser.add_argument("--size", help="WxH of the frames; default: 448x448")
    parser.add_argument(
        "--head", type=int, default=0, help="words at the beginning of each session's prompts"
    )
    parser.add_argument("--family", help="the engine's prompt pack, where its name does not tell")
    parser.add_argument("--forced", choices=ANSWERS, help="what an engine with dummy weights answers")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    console = Console()
    arms = PATHS if arguments.paths else ARMS
    design = replace(DESIGN, arms=arms, sessions=arguments.sessions, head=arguments.head)
    if arguments.size:
        width, _, height = arguments.size.partition("x")
        design = replace(design, size=(int(width), int(height)))

    def tell(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    try:
        settings = settings_of(
            ReplayOptions(source="", out=Path(), engine=arguments.engine, family=arguments.family)
        )
        with (
            engine_of(settings, tell) as engine,
            tempfile.TemporaryDirectory(prefix="vigil-bench-") as folder,
        ):
            if arguments.forced:
                family = settings.family or engine.pack.family
                pack = forced(engine, family, Path(folder), arguments.forced, design.size)
                engine = replace(engine, pack=pack)
            samples = asyncio.run(measure(settings, engine, tell, design))
            result = result_of(samples, engine_told(engine.facts.to_dict()), design)
    except CannotForce as error:
        console.print(f"replay_bench: {error}", style="red", markup=False, highlight=False)
        return 2
    except ReplayError as error:
        console.print(f"replay_bench: {error.message}", style="red", markup=False, highlight=False)
        return error.exit_code
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result, console)
    return 0 if all(result["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
