"""A ``Speaker`` that says a tone: 50 ms for each character, clause by clause, in chunks of at most 200 ms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator

import numpy as np

from bridges.speech import SpeechError, SpokenChunk
from bridges.timing import Durations

RATE = 24000
CHAR_MS = 50
CHUNK_CHARS = 4
_CLAUSE = re.compile(r"[,.;:!?]\s*")


class ScriptedSpeaker:
    """``hold`` keeps it from saying anything until ``free``; ``fail_after`` chunks it breaks."""

    rate_hz = RATE

    def __init__(self, fail_after: int | None = None) -> None:
        self.texts: list[str] = []
        """What it was given, by response."""
        self.voices: list[tuple[str | None, str | None]] = []
        self.cut = 0
        """Texts that it was not let finish."""
        self.first_sound = Durations()
        self._fail_after = fail_after
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def free(self) -> None:
        self._free.set()

    def statistics(self) -> dict[str, int]:
        return {"texts": len(self.texts), "cut": self.cut}

    async def aclose(self) -> None:
        """It holds nothing."""

    async def speak(
        self, words: AsyncIterator[str], voice: str | None, language: str | None
    ) -> AsyncGenerator[SpokenChunk, None]:
        self.voices.append((voice, language))
        self.texts.append("")
        number, said, chunks = len(self.texts) - 1, 0, 0
        try:
            async for clause in _clauses(self._noted(number, words)):
                for start in range(0, len(clause), CHUNK_CHARS):
                    await self._free.wait()
                    if chunks == self._fail_after:
                        raise SpeechError("speech_failed", "the script says so")
                    chunks += 1
                    piece = clause[start : start + CHUNK_CHARS]
                    said += len(piece)
                    yield SpokenChunk(tone(len(piece) * CHAR_MS), said)
        except (asyncio.CancelledError, GeneratorExit):
            self.cut += 1
            raise

    async def _noted(self, number: int, words: AsyncIterator[str]) -> AsyncIterator[str]:
        async for word in words:
            self.texts[number] += word
            yield word


async def _clauses(words: AsyncIterator[str]) -> AsyncIterator[str]:
    """Whole clauses as soon as they are there, the rest at the end."""
    waiting = ""
    async for word in words:
        waiting += word
        while (found := _CLAUSE.search(waiting)) and found.end() < len(waiting):
            yield waiting[: found.end()]
            waiting = waiting[found.end() :]
    if waiting:
        yield waiting


def tone(ms: int, rate: int = RATE) -> bytes:
    """A quarter-loud 440 Hz."""
    samples = np.arange(rate * ms // 1000)
    return bytes((8000 * np.sin(samples * 2 * np.pi * 440 / rate)).astype("<i2").tobytes())
