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
    """What the sessions of one process saw in one step; see ``Told``."""

    opened: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[float, float | None]] = field(default_factory=list)


def stage(number: int) -> float:
    """How full the window of a session is to begin with: any number of first sessions are at all stages."""
    return (0.5 + number * GOLDEN) % 1.0


class Pace:
    """When the sessions of one step show frames, and when what they show is measured. It begins now."""

    def __init__(self, job: Job, sessions: int) -> None:
        self._job, self._sessions = job, sessions
        self.began_at = time.monotonic()

    def due(self, place: int, frame: int) -> float:
        """When a session shows a frame. The sessions' phases are spread over the period."""
        return self.began_at + self._job.period_s * (frame + place / self._sessions)

    def next_frame(self, place: int) -> int:
        """The first one that is not overdue."""
        return max(0, math.ceil((time.monotonic() - self.due(place, 0)) / self._job.period_s))

    def measured(self, due: float) -> bool:
        return self.began_at + self._job.warm_s <= due < self.ends_at

    @property
    def ends_at(self) -> float:
        return self.began_at + self._job.warm_s + self._job.seconds


class Drive:
    """See ``Hears``. ``enter`` once, ``keep_pace`` in each step, ``leave`` at the end.

    :param number: of the session in its process
    :param pictures: shown in turn; ``sound``: of one period each, in turn with them
    """

    def __init__(
        self,
        job: Job,
        number: int,
        open_session: Opener,
        pictures: Sequence[bytes],
        sound: Sequence[bytes],
    ) -> None:
        self._job, self._number = job, number
        self._pictures, self._sound = pictures, sound
        self._open = open_session
        self._tally = Tally()
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

    async def enter(self, tally: Tally) -> bool:
        """Open it and fill its window; False when it was refused, or lost on the way."""
        self._tally = tally
        until = time.monotonic() + self._job.insist_s
        while True:
            try:
                await self._fill()
            except Refused as refused:
                if time.monotonic() < until:
                    await self._afresh()
                    continue
                tally.refused[refused.code] += 1
            except LoadError as lost:
                tally.lost[lost.code] += 1
            else:
                tally.opened += 1
                return True
            await self.leave()
            return False

    async def keep_pace(self, pace: Pace, place: int, tally: Tally) -> bool:
        """One step. False when it was lost on the way.

        :param place: of the session among those of the step
        """
        self._tally = tally
        self._waiting = {at: (sent_at, False) for at, (sent_at, _) in self._waiting.items()}
        try:
            await self._step(pace, place)
        except LoadError as lost:
            tally.lost[lost.code] += 1
            return False
        finally:
            for sent_at, measured in self._waiting.values():
                if measured:
                    tally.samples.append((sent_at, None))
            self._waiting.clear()
        return True

    async def leave(self) -> None:
        with suppress(LoadError):
            await self._session.close()

    async def _fill(self) -> None:
        job = self._job
        await self._session.open()
        for _ in range(round(job.fill * stage(self._number))):
            await self._at_once()
        await self._session.ask(job.query)
        await self._at_once()

    async def _afresh(self) -> None:
        """What a step before did to the service must not be held against this one."""
        await self.leave()
        await asyncio.sleep(AGAIN_S)
        self._over, self._frames = None, 0
        self._waiting.clear()
        self._session = self._open(self._number, self)

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

    async def _step(self, pace: Pace, place: int) -> None:
        job = self._job
        frame = pace.next_frame(place)
        while (due := pace.due(place, frame)) < pace.ends_at:
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


AGAIN_S = 1.0
"""Between two tries of a session that is refused."""
GOLDEN = 0.6180339887498949
STEP = 7
"""Pictures between the first ones of two sessions."""
LAST_ANSWERS = 4
"""Periods that the last answers are waited for."""
