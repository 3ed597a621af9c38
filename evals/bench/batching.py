"""What a stock engine's accelerator costs: requests advance together, one token a step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bridges.circuit import Clock


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one step, in seconds: whoever is in it; for each request that is new (its picture and prompt are
    read); for each token."""

    step_s: float = 0.0
    new_s: float = 0.0
    token_s: float = 0.0


FREE = Cost()


class Batch:
    """One accelerator with continuous batching: a request that comes while a step runs joins the next one."""

    def __init__(self, cost: Cost, clock: Clock) -> None:
        self._cost = cost
        self._clock = clock
        self._waiting: list[tuple[asyncio.Future[None], bool]] = []
        self._running: asyncio.Task[None] | None = None

    async def token(self, *, new: bool) -> None:
        """Wait for the next token of a request; ``new``: it is the first one."""
        if self._cost == FREE:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((done, new))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await done

    async def _run(self) -> None:
        clock, cost = self._clock, self._cost
        due = clock.now()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            took = cost.step_s + sum(cost.new_s * new + cost.token_s for _, new in batch)
            # From when the last step was over, so that a busy machine does not make the engine slower.
            due = max(due, clock.now() - took) + took
            await clock.sleep(due - clock.now())
            for done, _ in batch:
                if not done.done():
                    done.set_result(None)
            for _ in range(5):  # whoever wants another token asks for it before the next step begins
                await asyncio.sleep(0)
        self._running = None
