"""The load generator, in a process of its own: ``python -m evals.load.generator`` reads a job and runs it.

It prints ``ready`` when every window is filled, goes on when it is written a line, prints ``measuring`` when
frames begin to count, and at the end one JSON object; see ``evals.load.job``.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from evals.load.chat import CONNECT_S, ChatSession
from evals.load.drive import Drive, Pace, Tally
from evals.load.job import Job, Told, percentile
from evals.load.pictures import read
from evals.load.realtime import RealtimeSession
from evals.load.session import Hears, LoadSession, Opener
from evals.load.sound import periods

Shape = Callable[[Job], AbstractAsyncContextManager[Opener]]
"""What sessions of one kind share while a job runs."""

LAG_PERIOD_S = 0.02


@asynccontextmanager
async def realtime(job: Job) -> AsyncIterator[Opener]:
    def opener(number: int, hears: Hears) -> LoadSession:
        return RealtimeSession(job, hears)

    yield opener


@asynccontextmanager
async def chat(job: Job) -> AsyncIterator[Opener]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as http:

        def opener(number: int, hears: Hears) -> LoadSession:
            return ChatSession(job, hears, http)

        yield opener


SHAPES: Mapping[str, Shape] = {"realtime": realtime, "chat": chat}


async def generate(job: Job, shape: Shape, say: Callable[[str], None], go: Callable[[], None]) -> Told:
    """:param say: tells the other process how far it is; ``go``: blocks until that wants to begin"""
    pictures = read(Path(job.pictures))
    sound = periods(Path(job.sound), job.extra["sound_rate_hz"], job.period_s) if job.sound else []
    tally, pace, late = Tally(), Pace(job, job.sessions), list[float]()

    async with shape(job) as opener:

        async def one(number: int) -> None:
            await asyncio.sleep(job.opening_s * number)
            await Drive(job, number, opener, pictures, sound, tally, pace).run()

        running = asyncio.gather(*(one(number) for number in range(job.sessions)))
        if job.each_at_once:
            pace.begin()
            await running
            return _told(tally, late)
        await pace.all_ready.wait()
        if tally.opened and (job.stay or tally.opened == job.sessions):
            say("ready")
            await asyncio.to_thread(go)
            pace.begin()
            await asyncio.sleep(job.warm_s)
            say("measuring")
            watch = asyncio.create_task(lags(late))
            await asyncio.sleep(max(0.0, pace.ends_at - time.monotonic()))
            say("measured")
            watch.cancel()
            await running
        else:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    return _told(tally, late)


def _told(tally: Tally, late: list[float]) -> Told:
    return Told(
        tally.opened,
        dict(tally.refused),
        dict(tally.lost),
        dict(tally.errors),
        tuple(tally.samples),
        percentile(sorted(late), 0.99) or 0.0,
    )


async def lags(samples: list[float]) -> None:
    """How late this process's event loop runs what is due, in seconds, one sample a period."""
    while True:
        due = time.monotonic() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        samples.append(max(0.0, time.monotonic() - due))


def main(shapes: Mapping[str, Shape] = SHAPES) -> None:
    """:param shapes: by the names that a job may have"""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # sockets that a server has cut
    job = Job.from_json(sys.stdin.buffer.readline())

    def say(word: str) -> None:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()

    told = asyncio.run(generate(job, shapes[job.shape], say, _waited))
    say(told.to_json().decode())


def _waited() -> None:
    sys.stdin.buffer.readline()


if __name__ == "__main__":
    main()
