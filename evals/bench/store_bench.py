"""Micro bench of the store: what a tick pays for durability, and how fast a log can be filled.

``python -m evals.bench.store_bench --url sqlite:////tmp/b.db --data /tmp/frames --sessions 100 --seconds 10``

Each session ticks once a second, spread evenly: put a frame, append three facts, flush. Prints one
JSON object::

    write_ms, flush_ms   {"p50", "p99", "max"} over all ticks after the first second
    late_ticks           ticks that began more than one period after they were due
    cpu_share            process time / wall time of the ticking phase (1.0 = one core)
    append_per_s         facts per second made durable when one session appends without pause
    read_per_s           facts per second when that log is read back
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.store.session import DurableSession
from memory.store.store import Store

PERIOD_S = 1.0
BULK_FACTS = 50_000
BULK_FLUSH = 1_000
FACT = {"tick": 1, "media_time_ms": 1000, "action": "silence", "said": "</silence>", "raw": "x" * 200}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _spread(samples: Sequence[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {
        "p50": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "max": round(ordered[-1] * 1000, 2),
    }


async def _new_session(store: Store, name: str) -> DurableSession:
    return await store.create(
        f"{name}-{time.time_ns()}", tenant="bench", model="m", pack_digest="p", renderer=1
    )


async def _tick(store: Store, sessions: int, seconds: int, frame_bytes: int) -> dict[str, Any]:
    writes: list[float] = []
    flushes: list[float] = []
    late = 0
    opened = [await _new_session(store, f"tick{i}") for i in range(sessions)]
    begin = time.perf_counter()

    async def run(number: int, session: DurableSession) -> None:
        nonlocal late
        for tick in range(seconds):
            due = begin + (tick + number / sessions) * PERIOD_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            late += started - due > PERIOD_S
            uuid, frame = f"{session.id}-{tick}", os.urandom(frame_bytes)
            await asyncio.to_thread(session.frames.write, uuid, frame)
            written = time.perf_counter()
            await session.frames.put(uuid, frame)
            for _ in range(3):
                session.log.append("tick_answered", FACT)
            await session.log.flush()
            if tick:  # the first second creates folders and connections
                writes.append(written - started)
                flushes.append(time.perf_counter() - written)

    cpu = time.process_time()
    await asyncio.gather(*(run(number, session) for number, session in enumerate(opened)))
    wall = time.perf_counter() - begin
    return {
        "write_ms": _spread(writes),
        "flush_ms": _spread(flushes),
        "late_ticks": late,
        "cpu_share": round((time.process_time() - cpu) / wall, 3),
    }


async def _fill(store: Store) -> dict[str, Any]:
    session = await _new_session(store, "bulk")
    begin = time.perf_counter()
    for number in range(1, BULK_FACTS + 1):
        session.log.append("tick_answered", FACT)
        if number % BULK_FLUSH == 0:
            await session.log.flush()
    filled = time.perf_counter()
    count = len(await session.log.read())
    return {
        "append_per_s": round(BULK_FACTS / (filled - begin)),
        "read_per_s": round(count / (time.perf_counter() - filled)),
    }


async def bench(url: str, data: Path, sessions: int, seconds: int, frame_bytes: int) -> dict[str, Any]:
    """Run both phases; returns the JSON object described above."""
    store = await Store.open(url, data, now_ms=_now_ms)
    try:
        ticking = await _tick(store, sessions, seconds, frame_bytes)
        filling = await _fill(store)
        writer = store.statistics()["writer"]
    finally:
        await store.close()
    setup = {
        "database": url.split(":")[0],
        "sessions": sessions,
        "seconds": seconds,
        "frame_bytes": frame_bytes,
    }
    return {**setup, **ticking, **filling, "writer": writer}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True, help="sqlite:///file.db or postgresql://...")
    parser.add_argument("--data", required=True, type=Path, help="folder for frames")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--frame-bytes", type=int, default=60_000)
    options = parser.parse_args()
    result = asyncio.run(
        bench(options.url, options.data, options.sessions, options.seconds, options.frame_bytes)
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
