"""Summaries of a native session's talk, written by a summarizer beside the conversation.

Nothing waits for them: memory has cut notes of its own, and a summarizer that is away, slow or wrong leaves
those where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from bridges.engine import EngineError
from memory.facts import AnyFact, RollupFailed, RollupLanded, SummaryFailed, SummaryLanded
from memory.plan import WantRollup
from memory.spoken import SpokenMemory, SpokenWant
from memory.spoken_requests import spoken_messages
from orchestrator.backends.summaries import CHARS_PER_TOKEN, Summarizer, runs_away, shortened
from orchestrator.session.backend import Clock

SAMPLING = {"temperature": 0.2}
TOKENS_OVER = 2
"""A text may take so many times what it was asked to; memory cuts it."""
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 30.0


class Notes:
    """Run ``run`` as a task; call ``wake`` after every fact.

    :param write: logs a fact and folds it into ``memory``
    """

    def __init__(
        self, memory: SpokenMemory, write: Callable[[AnyFact], None], summarizer: Summarizer, clock: Clock
    ) -> None:
        self._memory = memory
        self._write = write
        self._summarizer = summarizer
        self._clock = clock
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> NoReturn:
        while True:
            self._news.clear()
            want = next(iter(self._memory.wants()), None)
            if want is None:
                await self._news.wait()
            elif not self._summarizer.ready:
                await self._clock.sleep(RETRY_MAX_S)
            else:
                if want.attempt > 1:
                    await self._clock.sleep(min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** (want.attempt - 2)))
                await self._carry(want)

    async def _carry(self, want: SpokenWant) -> None:
        target = self._memory.sizes.passage
        messages = spoken_messages(want, self._memory.spoken.telling, target)
        try:
            written = await self._summarizer.write(messages, SAMPLING, TOKENS_OVER * target, _no_pictures)
        except EngineError as problem:
            self._ended(want, "", problem.code.replace("engine", "summarizer", 1))
            return
        text, fault = written.text.strip(), None
        if written.finish_reason == "length":
            text = shortened(text, TOKENS_OVER * target * CHARS_PER_TOKEN)
        if not text:
            fault = "empty"
        elif runs_away(text):
            fault = "repetition"
        self._ended(want, text, fault)

    def _ended(self, want: SpokenWant, text: str, fault: str | None) -> None:
        start, end, attempt = want.start_ms, want.end_ms, want.attempt
        if isinstance(want, WantRollup):
            if fault is None:
                self._write(RollupLanded(chunks=want.chunks, text=text, start_ms=start, end_ms=end))
            else:
                self._write(RollupFailed(chunks=want.chunks, attempt=attempt, reason=fault))
        elif fault is None:
            self._write(
                SummaryLanded(chunk=want.chunk, text=text, start_ms=start, end_ms=end, attempt=attempt)
            )
        else:
            self._write(SummaryFailed(chunk=want.chunk, attempt=attempt, reason=fault))


def _no_pictures(uuid: str) -> bytes:
    raise KeyError(uuid)
