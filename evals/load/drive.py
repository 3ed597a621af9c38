"""One session of a load from its opening to its end, at the pace of a camera."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from evals.load.job import Job
from evals.load.pictures import commented
from evals.load.session import LoadError, LoadSession, Lost, Opener, Refused


@dataclass
class Tally:
    """What the sessions of one process saw; see ``Told``."""

    opened: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[float, float | None]] = field(default_factory=list)


class Pace:
    """When all sessions of a process begin to show frames, and when what they show is measured."""

    def __init__(self, job: Job, sessions: int) -> None:
        self._job, self._sessions = job, sessions
        self._ready = 0
        self.began_at = float("inf")
        self.all_ready = asyncio.Event()
        """Every session has filled its window, or was refused."""
        self.begins = asyncio.Event()

    def ready(self) -> None:
        self._ready += 1
        if self._ready == self._sessions:
            self.all_ready.set()

    def begin(self) -> None:
        self.began_at = time.monotonic()
        self.begins.set()

    def due(self, number: int, frame: int) -> float:
        """When a session shows a frame. The sessions' phases are spread over the period."""
        return self.began_at + self._job.period_s * (frame + number / self._sessions)

    def next_frame(self, number: int) -> int:
        """The first one that is not overdue."""
        return max(0, math.ceil((time.monotonic() - self.due(number, 0)) / self._job.period_s))

    def measured(self, due: float) -> bool:
        return self.began_at + self._job.warm_s <= due < self.ends_at

    @property
    def ends_at(self) -> float:
        return self.began_at + self._job.warm_s + self._job.seconds


class Drive:
    """See ``Hears``.

    :param pictures: shown in turn; ``sound``: of one period each, in turn with them
    """

    def __init__(
        self,
        job: Job,
        number: int,
        open_session: Opener,
        pictures: Sequence[bytes],
        sound: Sequence[bytes],
        tally: Tally,
        pace: Pace,
    ) -> None:
        self._job, self._number = job, number
        self._pictures, self._sound = pictures, sound
        self._tally, self._pace = tally, pace
        self._session: LoadSession = open_session(number, self)
        self._frames = 0
        self._waiting: dict[int, tuple[float, bool]] = {}
        self._news = asyncio.Event()
        self._over: str | None = None
        self._fault = "no_answer"

    # --- what the session tells -------------------------------------------------------------------------

    def decided(self, media_ms: int) -> None:
        now = time.monotonic()
        for each in [at for at in self._waiting if at <= media_ms]:
            sent_at, measured = self._waiting.pop(each)
            if measured:
                self._tally.samples.append((sent_at, now - sent_at))
        self._news.set()

    def faulted(self, code: str) -> None:
        self._tally.errors[code] += 1
        self._fault = code
        self._news.set()

    def lost(self, code: str) -> None:
        self._over = code
        self._news.set()

    # --- what it does -----------------------------------------------------------------------------------

    async def run(self) -> None:
        told = False
        try:
            if await self._enter():
                told = True
                self._pace.ready()
                await self._pace.begins.wait()
                await self._keep_pace()
        except LoadError as lost:
            self._tally.lost[lost.code] += 1
        finally:
            if not told:
                self._pace.ready()
            for sent_at, measured in self._waiting.values():
                if measured:
                    self._tally.samples.append((sent_at, None))
            self._waiting.clear()
            with suppress(LoadError):
                await self._session.close()

    async def _enter(self) -> bool:
        """Open it and fill its window; False when it was refused."""
        job = self._job
        try:
            await self._session.open()
            for _ in range(round(job.fill * (self._number + 0.5) / job.sessions)):
                await self._at_once()
            await self._session.ask(job.query)
            await self._at_once()
        except Refused as refused:
            self._tally.refused[refused.code] += 1
            return False
        self._tally.opened += 1
        return True

    async def _at_once(self) -> None:
        """Show a frame and wait until it is decided."""
        await self._show(measured=False)
        try:
            async with asyncio.timeout(self._job.patience_s):
                while self._waiting:
                    self._news.clear()
                    if self._over is not None:
                        kind = Lost if self._frames > 1 else Refused
                        raise kind(self._over)
                    if not self._session.waits:
                        raise Lost(self._fault)
                    await self._news.wait()
        except TimeoutError:
            raise Lost("no_answer") from None

    async def _keep_pace(self) -> None:
        job, pace = self._job, self._pace
        frame = pace.next_frame(self._number)
        while (due := pace.due(self._number, frame)) < pace.ends_at:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self._over is not None:
                raise Lost(self._over)
            if self._session.busy:
                if pace.measured(due):
                    self._tally.samples.append((time.monotonic(), None))
            else:
                await self._show(measured=pace.measured(due))
            frame += 1
        # The last answers, for at most as long as any answer is waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(job.patience_s, LAST_ANSWERS * job.period_s)):
                while self._waiting and self._over is None and self._session.waits:
                    self._news.clear()
                    await self._news.wait()

    async def _show(self, *, measured: bool) -> None:
        number = self._frames
        self._frames += 1
        picture = self._pictures[(self._number * STEP + number) % len(self._pictures)]
        media_ms = round(number * self._job.period_s * 1000)
        sound = self._sound[number % len(self._sound)] if self._sound else None
        own = commented(picture, f"{self._job.mark}/{self._number}/{number}")
        self._waiting[media_ms] = (time.monotonic(), measured)
        await self._session.show(own, media_ms, sound)


STEP = 7
"""Pictures between the first ones of two sessions."""
LAST_ANSWERS = 4
"""Periods that the last answers are waited for."""
