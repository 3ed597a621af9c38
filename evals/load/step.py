"""One step of a load: what a generator process tells of it, with the figures beside it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from evals.load.figures import Readings, Scraper
from evals.load.job import Job, Told, carried, doubtful, percentile

MODULE = "evals.load.generator"
LINE = 64 * 2**20
"""Bytes of what a generator tells at most."""
QUIET_S = 60.0
"""For what filling windows all at once left to do (summaries, next windows) before anything is measured."""
LEAVE_S = 10.0
"""For a generator to close its sessions."""


class GeneratorFailed(Exception):
    """The process of the generator ended before its time. The message has its last words."""


class Generator:
    """A running generator. ``ready``, ``begin``, ``end`` in that order for each step; ``aclose`` at any time.

    :param module: whose ``main`` knows the job's shape
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._told: Told | None = None

    @classmethod
    async def start(cls, job: Job, module: str = MODULE) -> Generator:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stdin=PIPE, stdout=PIPE, limit=LINE
        )
        assert process.stdin is not None
        process.stdin.write(job.to_json() + b"\n")
        return cls(process)

    async def ready(self, sessions: int) -> bool:
        """So many are in and their windows filled; False: it told its end instead, for nothing is to be
        measured."""
        self._told = None
        await self._write(str(sessions))
        return await self._word() == "ready"

    async def begin(self) -> None:
        await self._write("begin")

    async def until(self, word: str) -> None:
        while (heard := await self._word()) != word:
            if self._told is not None:
                raise GeneratorFailed(f"the generator ended before it told {word}, not {heard}")

    async def end(self) -> Told:
        """Of the step."""
        while self._told is None:
            await self._word()
        return self._told

    async def aclose(self) -> None:
        """Between steps it closes its sessions in order."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._process.wait()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def _word(self) -> str:
        if self._told is not None:
            return "told"
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise GeneratorFailed(f"the load generator ended with {await self._process.wait()}")
        if line.startswith(b"{"):
            self._told = Told.from_json(line)
            return "told"
        return line.decode().strip()


@dataclass(frozen=True, slots=True)
class Step:
    """What one number of sessions came to.

    :param settled: what filling windows left to do was done before it was measured
    """

    sessions: int
    told: Told
    readings: Readings
    settled: bool = True

    def carried(self, bound_s: float) -> bool:
        return carried(self.told, bound_s)

    def plain(self, bounds: Sequence[float]) -> dict[str, Any]:
        """Times in ms. ``never``: measured frames that were not decided; a percentile among them is null."""
        ordered = self.told.latencies()

        def ms(share: float) -> float | None:
            value = percentile(ordered, share)
            return None if value is None or value == float("inf") else round(value * 1000, 1)

        told = self.told
        return {
            "sessions": self.sessions,
            "opened": told.opened,
            "refused": dict(told.refused),
            "lost": dict(told.lost),
            "errors": dict(told.errors),
            "frames": len(ordered),
            "never": sum(took is None for _, took in told.samples),
            "p50_ms": ms(0.5),
            "p95_ms": ms(0.95),
            "p99_ms": ms(0.99),
            "generator_lag_ms": round(told.lag_s * 1000, 1),
            "settled": self.settled,
            "doubtful": doubtful(told, min(bounds)),
            "carried": {f"{bound:g}": self.carried(bound) for bound in bounds},
            **self.readings.summary(),
        }


async def step(generator: Generator, sessions: int, scraper: Scraper, *, quiet_s: float = QUIET_S) -> Step:
    """:param quiet_s: engines that are busy for longer are measured as they are, and the step says so
    :raises GeneratorFailed: its process ended before its time
    """
    ended = asyncio.Event()
    scraping: asyncio.Task[Readings] | None = None
    settled = True
    try:
        if await generator.ready(sessions):
            settled = await scraper.quiet(quiet_s)
            await generator.begin()
            await generator.until("measuring")
            scraping = asyncio.create_task(scraper.until(ended))
            await generator.until("measured")
            ended.set()
        told = await generator.end()
        return Step(sessions, told, await scraping if scraping is not None else Readings(), settled)
    finally:
        ended.set()
        if scraping is not None:
            await asyncio.gather(scraping, return_exceptions=True)
