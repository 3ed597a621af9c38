"""What a window handover costs when summaries are slow and fail: tokens and latency of the ticks around it.

``make bench-handover``, or ``python -m evals.bench.handover_bench --engine URL|PROFILE --out FILE``

600 ticks on a real engine, at the model's pace, with chunks of 50 frames. Every summary is held back for 20
ticks, every third is thrown away (``evals.bench.slow_summaries``). Steady ticks of the same run are the
yardstick: a tick that begins a window computes at most twice their tokens, and the ticks from the close of a
chunk to the one after the switch take at most 1.3 times as long (p95 of both).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.bench.machine import engine_told, machine
from evals.bench.pictures import clip_pictures
from evals.bench.slow_summaries import HandoverFigures, SlowSummaries, handover_figures
from evals.replay.core import engine_of, open_local, settings_of
from evals.replay.options import ReplayError, ReplayOptions
from orchestrator.engine_setup import Engine
from orchestrator.replay_track import ReplayTrack
from orchestrator.session.commands import AppendInput, AskQuery
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.settings import Settings

TICKS, CHUNK, SIDE = 600, 50, 448
QUERY = "Tell me what happens in front of the camera."
TICK_S = 120.0
GOAL_TOKENS, GOAL_LATENCY = 2.0, 1.3


async def measure(
    settings: Settings, engine: Engine, tell: Callable[[str], None], period_s: float
) -> list[dict[str, Any]]:
    """The rows of the run; a tick begins ``period_s`` after the one before, or as soon as that is done."""
    core = await open_local(settings, replace(engine, pack=replace(engine.pack, chunk_frames=CHUNK)))
    assert isinstance(core.track, ReplayTrack)
    host = core.track.hosts.fleet.hosts[0]
    host.chat = SlowSummaries(host.chat)
    rows: list[dict[str, Any]] = []
    try:
        session = await core.open_session(core.defaults)
        await session.submit(AskQuery(text=QUERY, operation_id="query"))
        due = time.monotonic()
        for n, picture in enumerate(clip_pictures((SIDE, SIDE), TICKS, time.time_ns()), start=1):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - period_s) + period_s
            unit = InputUnit(frames=(FrameInput(picture, n * core.track.offer.period_ms),), lossless=True)
            outcome = await session.operation(AppendInput(operation_id=f"frame-{n}", unit=unit), TICK_S)
            rows.append(dict(outcome.record))
            if n % 100 == 0:
                tell(f"tick {n} of {TICKS}")
        await session.close("bench_done")
    finally:
        await core.aclose()
    return rows


def result_of(figures: HandoverFigures, engine: Engine, period_s: float) -> dict[str, Any]:
    goals = {
        f"a tick that begins a window computes at most {GOAL_TOKENS:g}x a steady one": (
            figures.switch_cost <= GOAL_TOKENS
        ),
        f"p95 from a chunk's close to the tick after the switch at most {GOAL_LATENCY:g}x the steady p95": (
            figures.latency_ratio <= GOAL_LATENCY
        ),
    }
    return {
        "bench": "handover",
        "machine": machine(),
        "engine": engine_told(engine.facts.to_dict()),
        "period_s": period_s,
        **asdict(figures),
        "switch_cost": round(figures.switch_cost, 2),
        "latency_ratio": round(figures.latency_ratio, 3),
        "goals": goals,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="handover_bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", default="programmed-cpu", help="URL or profile (default: %(default)s)")
    parser.add_argument(
        "--period", type=float, help="seconds between ticks; default: the model's; 0: back to back"
    )
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    console = Console()

    def tell(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    try:
        options = ReplayOptions(source="", out=Path(), engine=arguments.engine, family="joyvl", seed=11)
        settings = settings_of(options)
        with engine_of(settings, tell) as engine:
            told = arguments.period
            period_s = engine.pack.period_ms / 1000 if told is None else told
            rows = asyncio.run(measure(settings, engine, tell, period_s))
            result = result_of(handover_figures(rows), engine, period_s)
    except ReplayError as error:
        console.print(f"handover_bench: {error.message}", style="red", markup=False, highlight=False)
        return error.exit_code
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    console.print_json(json.dumps({name: value for name, value in result.items() if name != "engine"}))
    return 0 if all(result["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
