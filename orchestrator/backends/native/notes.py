"""Summaries of a native session's talk, written by a summarizer beside the conversation.

Nothing waits for them: memory has cut notes of its own, and a summarizer that is away, slow or wrong leaves
those where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from bridges.engine import EngineError, ImageBytes
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


async def written(
    summarizer: Summarizer, messages: Sequence[Mapping[str, Any]], target: int, images: ImageBytes
) -> tuple[str, str | None]:
    """A text of about ``target`` tokens, and what is wrong with it."""
    try:
        reply = await summarizer.write(messages, SAMPLING, TOKENS_OVER * target, images)
    except EngineError as problem:
        return "", problem.code.replace("engine", "summarizer", 1)
    text = reply.text.strip()
    if reply.finish_reason == "length":
        text = shortened(text, TOKENS_OVER * target * CHARS_PER_TOKEN)
    if not text:
        return "", "empty"
    return text, "repetition" if runs_away(text) else None


def backoff_s(attempt: int) -> float:
    """Before that attempt, counted from 1."""
    return 0.0 if attempt <= 1 else min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(10, attempt - 2))


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
                await self._clock.sleep(backoff_s(want.attempt))
                await self._carry(want)

    async def _carry(self, want: SpokenWant) -> None:
        target = self._memory.sizes.passage
        messages = spoken_messages(want, self._memory.spoken.telling, target)
        text, fault = await written(self._summarizer, messages, target, _no_pictures)
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
