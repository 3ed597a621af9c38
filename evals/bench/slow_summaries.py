"""An engine whose summaries come late and fail now and then, and what a session made of it.

Between the session and a real engine: ticks and prewarms pass untouched. A summary (or a merge of summaries)
is really written, then held back until so many further ticks were answered; every third one is thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bridges.engine import ChatEvent, ChatRequest, EngineServerError, ImageBytes
from evals.bench.between import Between
from evals.stats import Row, asked_engine, percentile, within_windows
from orchestrator.backends.replay.background import PREWARM, SUMMARY
from orchestrator.engines.fleet import Judged


class SlowSummaries(Between):
    """:param ticks: for which a finished text is held back; every ``fails_every``-th is thrown away"""

    def __init__(self, engine: Judged, ticks: int = 20, fails_every: int = 3) -> None:
        super().__init__(engine)
        self._late = ticks
        self._fails_every = fails_every
        self._answered = 0
        self._told = asyncio.Condition()
        self.written = 0
        self.thrown_away = 0

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        async with aclosing(super().chat(request, images)) as events:
            if request.deadlines != SUMMARY:
                async for event in events:
                    yield event
                if request.deadlines != PREWARM:
                    await self._tick()
                return
            kept = [event async for event in events]
        self.written += 1
        number, until = self.written, self._answered + self._late
        async with self._told:
            await self._told.wait_for(lambda: self._answered >= until)
        if number % self._fails_every == 0:
            self.thrown_away += 1
            raise EngineServerError("this text was thrown away on purpose")
        for event in kept:
            yield event

    async def _tick(self) -> None:
        async with self._told:
            self._answered += 1
            self._told.notify_all()


@dataclass(frozen=True, slots=True)
class HandoverFigures:
    """Of one run.

    :param switches: ticks that were the first of a window, the session's first window apart
    :param steady_uncached: median tokens that a tick within a window computes
    :param switch_uncached: the same of each switch tick
    :param steady_ms: p95 latency of ticks far from a handover; ``steady_ticks`` of them
    :param handover_ms: p95 latency from the tick that closed a chunk to the one after the switch
    """

    switches: int
    steady_uncached: float
    switch_uncached: tuple[int, ...]
    steady_ticks: int
    steady_ms: float
    handover_ticks: int
    handover_ms: float

    @property
    def switch_cost(self) -> float:
        """The dearest switch tick in medians of its neighbours."""
        return max(self.switch_uncached) / self.steady_uncached

    @property
    def latency_ratio(self) -> float:
        return self.handover_ms / self.steady_ms


def handover_figures(rows: Sequence[Row], *, settled: int = 5) -> HandoverFigures:
    """Figures over the rows of ``decisions.jsonl``; the first ``settled`` ticks, still cold, are left out."""
    asked = [row for row in rows if asked_engine(row)][settled:]
    uncached = [int(row["prompt_tokens"]) - int(row["cached_tokens"]) for row in within_windows(asked)]
    switch_uncached: list[int] = []
    near: list[float] = []
    far: list[float] = []
    closing = follows = False
    for before, row in pairwise(asked):
        switched = row["window"] != before["window"]
        closing = closing or row["chunk"] != before["chunk"]
        (near if closing or switched or follows else far).append(float(row["latency_ms"]))
        if switched:
            switch_uncached.append(int(row["prompt_tokens"]) - int(row["cached_tokens"]))
        closing, follows = closing and not switched, switched
    return HandoverFigures(
        len(switch_uncached),
        median(uncached),
        tuple(switch_uncached),
        len(far),
        percentile(far, 0.95) or 0.0,
        len(near),
        percentile(near, 0.95) or 0.0,
    )
