"""The soak's load generator, in a process of its own: ``python -m evals.bench.soak_load --url ... ``.

Prints one JSON object: what its clients saw, and how late it was itself.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any

import orjson

from evals.bench.scripted_engine import lags
from evals.bench.soak_client import WAYS, SoakClient, Tally
from tests.fakes.pictures import jpeg

PICTURES = 40
SIDE = 224
OPENING_S = 20.0
"""Over which the sessions are opened."""


def spread(samples: Sequence[float]) -> dict[str, float | int]:
    """Percentiles in ms."""
    ordered = sorted(samples)
    if not ordered:
        return {"count": 0}
    return {
        "count": len(ordered),
        **{
            name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        },
    }


async def load(url: str, sessions: int, seconds: float, warm_s: float) -> dict[str, Any]:
    """:param warm_s: from the start; what is measured before it does not count"""
    tally, measuring, late = Tally(), asyncio.Event(), list[float]()
    pictures = [jpeg(number, SIDE, SIDE) for number in range(PICTURES)]
    begin = time.monotonic()
    until = begin + seconds
    opening_s = min(OPENING_S, seconds / 4)

    async def one(number: int) -> None:
        await asyncio.sleep(opening_s * number / sessions)
        way = WAYS[number % len(WAYS)]
        await SoakClient(url, number, way, pictures, tally, measuring).run(until)

    async def measure() -> None:
        await asyncio.sleep(max(warm_s, opening_s + 1))
        measuring.set()
        await lags(late)

    watch = asyncio.create_task(measure())
    await asyncio.gather(*(one(number) for number in range(sessions)))
    watch.cancel()
    return {
        "counts": dict(tally.counts),
        "errors": dict(tally.errors),
        "faults": tally.faults,
        "in_ms": spread(tally.asked),
        "out_words_ms": spread(tally.worded),
        "out_done_ms": spread(tally.ended),
        "tick_ms": spread(tally.whole),
        "frame_to_request_ms": spread(tally.shown),
        "generator_lag_ms": spread(late),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm", type=float, required=True)
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients write into connections that they have cut
    told = asyncio.run(load(options.url, options.sessions, options.seconds, options.warm))
    sys.stdout.write(orjson.dumps(told).decode() + "\n")


if __name__ == "__main__":
    main()
