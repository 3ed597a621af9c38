"""The sessions of one generator. They stay from one step to the next: what fills a window is done once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from evals.load.drive import Drive, Pace, Tally
from evals.load.job import Job
from evals.load.session import Opener


class Crowd:
    """``reach`` a number, then ``keep_pace``; ``leave`` at the end. A job's ``each_at_once`` is ``arrive``.

    :param pictures: shown in turn; ``sound``: of one period each, in turn with them
    """

    def __init__(
        self, job: Job, open_session: Opener, pictures: Sequence[bytes], sound: Sequence[bytes]
    ) -> None:
        self._job, self._open = job, open_session
        self._pictures, self._sound = pictures, sound
        self._drives: list[Drive] = []
        self._numbers = 0

    async def reach(self, sessions: int, tally: Tally) -> None:
        """Have so many in, windows filled. Those that are in already are counted; none is put out."""
        missing = sessions - len(self._drives)
        tally.opened = min(len(self._drives), sessions)
        new = [self._drive() for _ in range(missing)]

        async def one(place: int, drive: Drive) -> bool:
            await asyncio.sleep(self._job.opening_s * place)
            return await drive.enter(tally)

        entered = await asyncio.gather(*(one(place, drive) for place, drive in enumerate(new)))
        self._drives += [drive for drive, is_in in zip(new, entered, strict=True) if is_in]

    async def keep_pace(self, sessions: int, pace: Pace, tally: Tally) -> None:
        """So many of them show frames; the others rest. Those that are lost are not counted again."""
        walking = self._drives[:sessions]
        stay = await asyncio.gather(
            *(drive.keep_pace(pace, place, tally) for place, drive in enumerate(walking))
        )
        lost = [drive for drive, is_in in zip(walking, stay, strict=True) if not is_in]
        self._drives = [drive for drive in self._drives if drive not in lost]
        await asyncio.gather(*(drive.leave() for drive in lost))

    async def arrive(self, tally: Tally) -> None:
        """Sessions come one by one, and each keeps its pace from when it is in until the step is over."""
        pace = Pace(self._job, self._job.sessions)

        async def one(place: int, drive: Drive) -> None:
            await asyncio.sleep(max(0.0, pace.began_at + self._job.opening_s * place - time.monotonic()))
            if await drive.enter(tally):
                await drive.keep_pace(pace, place, tally)
                await drive.leave()

        drives = [self._drive() for _ in range(self._job.sessions)]
        await asyncio.gather(*(one(place, drive) for place, drive in enumerate(drives)))

    async def leave(self) -> None:
        await asyncio.gather(*(drive.leave() for drive in self._drives))
        self._drives.clear()

    def _drive(self) -> Drive:
        number, self._numbers = self._numbers, self._numbers + 1
        return Drive(self._job, number, self._open, self._pictures, self._sound)
