"""Twice the capacity offered to a service: who keeps its pace, who is refused, how soon all is well again.

Half of what was measured to be carried is there first. Then others come, one by one, until twice as many
have asked as are carried: the service lets in as many as it finds room for. These leave again.
An arm of ``evals.bench.sessions_bench``, on the engine that is measured there. ``make bench-overload`` has it
on a scripted engine that batches as a stock one does (``evals.bench.batching``): it takes no GPU, and little
of the machine, so that a regression of the service shows. Its capacity is looked for first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evals.bench.machine import machine
from evals.bench.stand import standing
from evals.clips import clip
from evals.load.capacity import capacities
from evals.load.figures import Readings, Scraper
from evals.load.job import INSIST_S, LATE, Job, Told, percentile
from evals.load.pictures import prepare
from evals.load.step import QUIET_S, Generator, GeneratorFailed, Step, step

BEFORE_S, DURING_S, AFTER_S = 8.0, 15.0, 12.0
START_S = 4.0
"""For the process of those who come later."""
RECOVERY_TICKS = 10
ARRIVAL_S = 2.0
"""Between those who come later: admission goes by what it has measured."""
REFUSAL = "resource_exhausted"
QUEUED_FRAMES = 8
"""Frames of one session that may wait: more is a queue."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Monotonic times in seconds: the first others come, the last of them has left."""

    came: float
    left: float


def judged(first: Told, others: Told, came: int, spans: Spans, period_s: float) -> dict[str, Any]:
    """Figures of those who were there first, in ms by span, and of those who were let in later; what became
    of ``came`` others; recovery."""
    parts = {
        "before": [took for at, took in first.samples if at < spans.came],
        "during": [took for at, took in first.samples if spans.came <= at < spans.left],
        "after": [took for at, took in first.samples if at >= spans.left],
        "let in": [took for _, took in others.samples],
    }
    p95 = {name: percentile(sorted(map(_known, part)), 0.95) for name, part in parts.items()}
    return {
        "there_first": first.opened,
        "came_later": came,
        "admitted": others.opened,
        "refused": dict(others.refused),
        "lost": sum(first.lost.values()) + sum(others.lost.values()),
        "p95_ms": {name: None if p is None or p == LATE else round(p * 1000, 1) for name, p in p95.items()},
        "recovery_ticks": recovery(first.samples, spans.left, period_s),
    }


def recovery(samples: Sequence[tuple[float, float | None]], left: float, period_s: float) -> int | None:
    """Periods after ``left`` until the p95 of a period's frames is within one period, and stays so."""
    by_period: dict[int, list[float]] = {}
    for at, took in samples:
        if at >= left:
            by_period.setdefault(int((at - left) / period_s), []).append(_known(took))
    if not by_period:
        return None
    late = [n for n, each in by_period.items() if (percentile(sorted(each), 0.95) or 0.0) > period_s]
    ended = max(late) + 1 if late else 0
    return ended if ended in by_period else None


def _known(took: float | None) -> float:
    return LATE if took is None else took


async def overloaded(job: Job, engine: str, period_s: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """:param job: with as many sessions as are carried within a period. What filling the windows of the first
    left to do is waited for; ``settled``: it was done"""
    scraper = Scraper(job.url, [engine])
    ended = asyncio.Event()
    there = max(1, job.sessions // 2)
    came_later = 2 * job.sessions - there
    others_s = came_later * ARRIVAL_S + DURING_S
    whole_s = BEFORE_S + others_s + START_S + AFTER_S
    first = await Generator.start(
        replace(job, sessions=there, seconds=whole_s, mark=f"{job.mark}first", stay=True)
    )
    late: Generator | None = None
    scraping: asyncio.Task[Readings] | None = None
    try:
        if not await first.ready(there):
            raise GeneratorFailed(f"not all of those who are there first were let in: {await first.end()}")
        settled = await scraper.quiet(QUIET_S)
        await first.begin()
        await first.until("measuring")
        scraping = asyncio.create_task(scraper.until(ended))
        await asyncio.sleep(BEFORE_S)
        came = time.monotonic()
        late = await Generator.start(
            replace(
                job,
                sessions=came_later,
                mark=f"{job.mark}later",
                fill=0,
                warm_s=0.0,
                seconds=others_s,
                opening_s=ARRIVAL_S,
                each_at_once=True,
            )
        )
        others = await late.end()
        left = time.monotonic()
        tell(f"{others.opened} of {came_later} more were let in")
        told = await first.end()
        ended.set()
        readings = (await scraping).summary()
    finally:
        ended.set()
        if scraping is not None:
            await asyncio.gather(scraping, return_exceptions=True)
        for generator in (first, late):
            if generator is not None:
                await generator.aclose()
        await scraper.aclose()
    result = judged(told, others, came_later, Spans(came, left), period_s) | readings | {"settled": settled}
    return result | {"checks": checks(result, period_s)}


def checks(result: dict[str, Any], period_s: float) -> dict[str, bool]:
    kept = [result["p95_ms"]["during"], *([result["p95_ms"]["let in"]] if result["admitted"] else [])]
    waiting = result.get("service", {}).get("most", {}).get("frames_waiting", 0)
    back = result["recovery_ticks"]
    refused = result["refused"]
    return {
        "overload: who is not let in is refused with a code that says try again": set(refused) <= {REFUSAL}
        and result["admitted"] + sum(refused.values()) == result["came_later"],
        "overload: whoever is in is answered within the period (p95)": all(
            p95 is not None and p95 <= 1000 * period_s for p95 in kept
        ),
        "overload: nobody who is in is lost": result["lost"] == 0,
        "overload: nothing queues without bound": waiting
        <= QUEUED_FRAMES * (result["there_first"] + result["admitted"]),
        f"overload: all is well within {RECOVERY_TICKS} ticks": back is not None and back <= RECOVERY_TICKS,
    }


FLAGS = (
    *("--voice-bridge", "none"),
    *("--limits-sessions", "1000", "--auth-quota-handshakes-per-minute", "100000"),
)
"""So that nothing but admission refuses a session."""
COST = ("--step-ms", "20", "--new-ms", "60")
"""Of the scripted engine: a decision of two tokens alone takes 100 ms, ten at a time 0.64 s."""
PERIOD_S = 1.0


async def scripted(folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """The arm against a scripted engine: ``capacity`` and ``overload``."""
    for name in ("pictures", "one", "two"):
        (folder / name).mkdir()
    prepare(clip("bikes.mp4"), folder / "pictures", (224, 224), 0.0, 60)
    job = Job(
        url="", shape="realtime", sessions=0, pictures=str(folder / "pictures"), query="Watch.",
        period_s=PERIOD_S, seconds=10.0,
    )  # fmt: skip
    capacity = await _served(folder / "one", job, lambda job, engine: _capacity(job, engine, tell))
    sessions = max(1, capacity["capacity"][f"{PERIOD_S:g}"])
    overload = await _served(
        folder / "two",
        replace(job, sessions=sessions),
        lambda job, engine: overloaded(job, engine, PERIOD_S, tell),
    )
    return {"capacity": capacity, "overload": overload}


async def _served(
    folder: Path, job: Job, use: Callable[[Job, str], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    async with standing(folder, FLAGS, speak=0.1, cost=COST) as stand:
        return await use(replace(job, url=stand.url), stand.engine_url)


async def _capacity(job: Job, engine: str, tell: Callable[[str], None]) -> dict[str, Any]:
    scraper = Scraper(job.url, [engine])
    generator = await Generator.start(replace(job, insist_s=INSIST_S))

    async def tried(sessions: int) -> Step:
        made = await step(generator, sessions, scraper)
        tell(f"{sessions} sessions: p95 {made.plain((PERIOD_S,))['p95_ms']} ms")
        return made

    try:
        return await capacities(tried, (PERIOD_S,), 32, first=4, within=0.1)
    finally:
        await generator.aclose()
        await scraper.aclose()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()

    def tell(line: str) -> None:
        sys.stderr.write(line + "\n")

    with tempfile.TemporaryDirectory(prefix="vigil-overload-") as folder:
        result = asyncio.run(scripted(Path(folder), tell))
    told = json.dumps({"bench": "overload", "machine": machine(), **result}, indent=2)
    if given.out is not None:
        given.out.write_text(told + "\n")
    sys.stdout.write(told + "\n")
    return 0 if all(result["overload"]["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
