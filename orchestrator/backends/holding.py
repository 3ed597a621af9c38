"""An answer on its way out, which can be held: it waits where it is, whole, until it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orchestrator.session.backend import (
    Action,
    AudioDelta,
    BackendOutput,
    Clock,
    Decision,
    TextDelta,
    TurnEnd,
)


class Holding:
    """
    :param longest_s: an answer is held for that long at most
    :param told: of each beginning and end; ``count``: ``held``, and ``resumed`` where it was for nothing
    """

    def __init__(
        self, clock: Clock, longest_s: float, told: Callable[[bool], None], count: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._told = told
        self._count = count
        self.pauses = False
        """While it is held nothing of it is played either."""
        self._since = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._late: asyncio.Task[None] | None = None
        self._open = False
        self._plays_until = float("-inf")
        self._epoch = 0

    @property
    def holds(self) -> bool:
        return not self._flowing.is_set()

    @property
    def is_answering(self) -> bool:
        """Something is being said, or what was said is still being played, as far as the clock tells."""
        return self._open or self._clock.now() < self._plays_until

    async def passes(self, output: BackendOutput) -> None:
        """Return when the output may go out; those of no answer may at once."""
        if isinstance(output, TextDelta | AudioDelta | TurnEnd):
            await self._flowing.wait()
        match output:
            case Decision() | TextDelta() | AudioDelta() | TurnEnd() if output.fence.epoch < self._epoch:
                pass  # of an answer that was cancelled
            case TurnEnd():
                self._open = False
            case TextDelta() | Decision(action=Action.RESPONSE):
                self._open = True
            case AudioDelta(pcm=pcm, rate=rate):
                self._open = True
                begins = max(self._plays_until, self._clock.now())
                self._plays_until = begins + len(pcm) / 2 / rate

    def hold(self) -> None:
        if self.holds:
            return
        self._count("held")
        self._since = self._clock.now()
        self._flowing.clear()
        self._late = asyncio.create_task(self._too_late(), name="hearing verdict")
        self._told(True)

    def resume(self) -> None:
        """It was held for nothing."""
        if self.holds:
            self._count("resumed")
        self.let_go()

    def let_go(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if not self.holds:
            return
        if self.pauses and self._plays_until > self._since:
            self._plays_until += self._clock.now() - self._since
        self._flowing.set()
        self._told(False)

    def cancelled(self, epoch: int) -> None:
        """There is no answer any more that is older than this."""
        self._epoch = max(self._epoch, epoch)
        self.let_go()
        self._open, self._plays_until = False, float("-inf")

    async def _too_late(self) -> None:
        await self._clock.sleep(self._longest_s)
        self._late = None
        self.resume()
