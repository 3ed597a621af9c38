"""The load generator, in a process of its own: ``python -m evals.load.generator`` reads a job and its steps.

A step is a line with a number of sessions. It prints ``ready`` when so many have filled windows, goes on when
it is written a line, prints ``measuring`` when frames begin to count and ``measured`` when they no longer do,
and at the step's end one JSON object; see ``evals.load.job``. Sessions stay for the next step. A job of
``each_at_once`` is one step that waits for no line.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from evals.load.chat import CONNECT_S, ChatSession
from evals.load.crowd import Crowd
from evals.load.drive import Pace, Tally
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
        return RealtimeSession(job, number, hears)

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


async def generate(
    job: Job, shape: Shape, say: Callable[[str], None], hear: Callable[[], str]
) -> AsyncGenerator[Told, None]:
    """What came of each step.

    :param say: tells the other process how far it is; ``hear``: blocks for its next line, empty: no more
    """
    pictures = read(Path(job.pictures))
    sound = periods(Path(job.sound), job.extra["sound_rate_hz"], job.period_s) if job.sound else []
    async with shape(job) as opener:
        crowd = Crowd(job, opener, pictures, sound)
        try:
            if job.each_at_once:
                tally = Tally()
                await crowd.arrive(tally)
                yield _told(tally, [])
                return
            while line := await asyncio.to_thread(hear):
                yield await _step(job, crowd, int(line), say, hear)
        finally:
            await crowd.leave()


async def _step(
    job: Job, crowd: Crowd, sessions: int, say: Callable[[str], None], hear: Callable[[], str]
) -> Told:
    tally, late = Tally(), list[float]()
    await crowd.reach(sessions, tally)
    if tally.opened and (job.stay or tally.opened == sessions):
        say("ready")
        await asyncio.to_thread(hear)
        pace = Pace(job, tally.opened)
        walking = asyncio.create_task(crowd.keep_pace(tally.opened, pace, tally))
        await asyncio.sleep(job.warm_s)
        say("measuring")
        watch = asyncio.create_task(lags(late))
        await asyncio.sleep(max(0.0, pace.ends_at - time.monotonic()))
        say("measured")
        watch.cancel()
        await walking
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

    async def run() -> None:
        async with aclosing(generate(job, shapes[job.shape], say, _line)) as steps:
            async for told in steps:
                say(told.to_json().decode())

    with suppress(KeyboardInterrupt):
        asyncio.run(run())


def _line() -> str:
    return sys.stdin.buffer.readline().decode().strip()


if __name__ == "__main__":
    main()
