"""Eight simulated hours of one session, and the same hours with the naive layout beside it.

Run from the checkout: ``make bench-memory`` (or ``python -m evals.bench.memory_longrun --hours 8``).
The session is the real backend with the real memory and a durable store, on a simulated clock; the engine
is scripted but counts prompt tokens and prefix-cache hits truly. Exit code 1 if something is not flat after
the third hour: prompt tokens, tokens prefilled an hour, the memory's own size, the process's size.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from bridges.frames import CheckedFrame
from evals.bench.accounting_engine import AccountingEngine
from evals.bench.naive_layout import NaiveLayout
from memory.plan import Limits
from memory.render import RENDERER
from memory.store.store import Store
from memory.store.transient import TransientFrames
from orchestrator.backends.replay.backend import ReplayBackend
from orchestrator.backends.replay.intake import Stored
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.runtime.permits import Permits
from orchestrator.session.backend import SessionConfig, TickDone
from orchestrator.session.fence import Fence
from orchestrator.session.told import QueryAsked
from orchestrator.session.units import FrameInput, InputUnit
from prompts.loader import load_pack
from tests.fakes.clock import CountingIds, VirtualClock, settle

HOUR = 3600
IMAGE_TOKENS = 196
QUERY_EVERY = 600
FLAT = 1.10
"""Largest later hour against the largest of the first three."""


async def vigil_hours(hours: int, folder: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    pack, clock = load_pack("joyvl"), VirtualClock()
    engine = AccountingEngine(pack.tags.all, speak=0.1, image_tokens=IMAGE_TOKENS)
    store = await Store.open(f"sqlite:///{folder / 'vigil.db'}", folder, now_ms=clock.wall_ms)
    session = await store.create(
        "session", tenant="bench", model="m", pack_digest=pack.digest, renderer=RENDERER
    )
    backend = ReplayBackend(
        "session", pack, engine, TransientFrames(2**20), session.log, Permits(2), clock, CountingIds(),
        _unchecked, ReplayOptions(
            tenant_key=b"key",
            engine=EngineLimits(block_tokens=32),
            window=Limits(max_images=256, context_tokens=65536),
        ),
    )  # fmt: skip
    await backend.open(SessionConfig(model="m"))
    reader = asyncio.create_task(_read(backend))
    figures: list[dict[str, Any]] = []
    before: dict[str, int] = {}
    for tick in range(hours * HOUR):
        if tick % QUERY_EVERY == 0:
            await backend.tell(QueryAsked(f"Tell me about thing {tick}.", f"q{tick}", True), Fence(0, 0))
        frame = FrameInput(b"frame %d" % tick, tick * 1000, f"f{tick}")
        await backend.append(InputUnit((frame,)), Fence(0, 0), f"op{tick}")
        await clock.advance(1.0)
        while backend.statistics()["frames"]["waiting"]:
            await asyncio.sleep(0.001)  # the store writes in threads, on real time
            await settle()
        if (tick + 1) % HOUR == 0:
            figures.append(_hour(engine, before, backend))
            before = dict(engine.accounts.prefilled)
            tell(f"vigil hour {len(figures)}: {figures[-1]}")
    await backend.close("over")
    await reader
    await store.close()
    return figures


def naive_hours(hours: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    pack = load_pack("joyvl")
    engine = AccountingEngine(pack.tags.all, speak=0.1, image_tokens=IMAGE_TOKENS)
    naive = NaiveLayout(engine, pack.persona("default", "en"))
    figures: list[dict[str, Any]] = []
    before: dict[str, int] = {}
    for tick in range(hours * HOUR):
        if tick % QUERY_EVERY == 0:
            naive.ask(f"Tell me about thing {tick}.")
        naive.tick(f"f{tick}")
        if (tick + 1) % HOUR == 0:
            figures.append(_hour(engine, before, None))
            before = dict(engine.accounts.prefilled)
            tell(f"naive hour {len(figures)}: {figures[-1]}")
    return figures


def _hour(engine: AccountingEngine, before: dict[str, int], backend: ReplayBackend | None) -> dict[str, Any]:
    spent = {kind: total - before.get(kind, 0) for kind, total in engine.accounts.prefilled.items()}
    hour: dict[str, Any] = {
        "prompt_tokens": engine.last_prompt,
        "prefilled_by_ticks": spent.get("decide", 0) + spent.get("prewarm", 0),
        "prefilled_by_summaries": spent.get("summary", 0),
    }
    if backend is not None:
        hour["head_bytes"] = sum(len(section.text) for section in backend.memory.head.sections)
        hour["memory_bytes"] = len(pickle.dumps(backend.memory.parts))
        hour["rss_mb"] = round(psutil.Process().memory_info().rss / 2**20, 1)
    return hour


async def _unchecked(
    frames: Sequence[bytes], max_pixels: int, then: Callable[[Sequence[CheckedFrame]], Stored]
) -> Stored:
    return then([CheckedFrame(data, 448, 448, passed_through=True) for data in frames])


async def _read(backend: ReplayBackend) -> None:
    async for output in backend.outputs():
        if isinstance(output, TickDone) and output.error_code:
            raise RuntimeError(f"tick {output.tick} failed: {output.error_code}")


def not_flat(figures: list[dict[str, Any]]) -> list[str]:
    """What is larger by more than a tenth in any later hour than in any of the first three.

    A single hour is no yardstick: a head holds between none and five summaries when the hour ends.
    """
    first, later = figures[:3], figures[3:]
    grown = []
    for name in first[0]:
        before, after = (max(hour[name] for hour in hours) for hours in (first, later))
        if after > FLAT * before:
            grown.append(f"{name}: at most {before} in the first three hours, {after} later")
    return grown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=8, help="simulated hours (at least 4)")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        vigil = asyncio.run(vigil_hours(arguments.hours, Path(folder), print))
    naive = naive_hours(arguments.hours, print)
    grown = not_flat(vigil)
    ratio = sum(h["prefilled_by_ticks"] for h in naive) / sum(h["prefilled_by_ticks"] for h in vigil)
    result = {
        "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}",
        "hours": arguments.hours,
        "vigil": vigil,
        "naive": naive,
        "naive_prefills_times_vigil": round(ratio, 2),
        "not_flat_after_hour_3": grown,
        "wall_s": round(time.monotonic() - started, 1),
    }
    print(json.dumps({k: v for k, v in result.items() if k not in ("vigil", "naive")}, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
