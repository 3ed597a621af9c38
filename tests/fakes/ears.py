"""Ears that hear what a test says: loud is speech; words are given out one utterance after the other."""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np

from bridges.asr import AsrError
from bridges.timing import Durations
from bridges.vad import Samples, VadError
from orchestrator.backends.ears import Ears, EarsOptions

RATE_HZ = 16000
WINDOW_MS = 32


class LoudnessDetector:
    """Speech is what is loud. ``break_after`` windows it breaks."""

    rate_hz, window = RATE_HZ, RATE_HZ * WINDOW_MS // 1000

    def __init__(self, break_after: int | None = None) -> None:
        self.heard = self.resets = 0
        self._break_after = break_after

    def probability(self, samples: Samples) -> float:
        self.heard += 1
        if self._break_after is not None and self.heard > self._break_after:
            raise VadError("the script says so")
        return float(np.abs(samples).mean() > 0.05)

    def reset(self) -> None:
        self.resets += 1


class ScriptedTranscriber:
    """``hold`` keeps words back until ``free``. An entry that is an error is raised. What is not final
    is refused unless ``partials`` has words for it."""

    def __init__(self, *words: str | AsrError) -> None:
        self.words: deque[str | AsrError] = deque(words)
        self.partials: deque[str] = deque()
        self.asked: list[tuple[float, bool, str | None]] = []
        """Seconds of sound, final, language."""
        self.closed = False
        self.took = Durations()
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def free(self) -> None:
        self._free.set()

    async def transcribe(
        self, samples: Samples, stream: str, *, language: str | None, final: bool, deadline_s: float
    ) -> str:
        if not final and not self.partials:
            raise AsrError("asr_overloaded", "the script says so")
        self.asked.append((samples.size / RATE_HZ, final, language))
        if not final:
            return self.partials.popleft()
        await self._free.wait()
        words = self.words.popleft() if self.words else ""
        if isinstance(words, AsrError):
            raise words
        return words

    def statistics(self) -> dict[str, int]:
        done = sum(final for _, final, _ in self.asked)
        return {"waiting": 0, "in_work": 0, "refused": 0, "failed": 0, "transcribed": done}

    async def aclose(self) -> None:
        self.closed = True


def ears(transcriber: ScriptedTranscriber, **options: object) -> Ears:
    return Ears(LoudnessDetector, transcriber, EarsOptions(**options))  # type: ignore[arg-type]


def loud(ms: float) -> Samples:
    return np.full(round(ms * RATE_HZ / 1000), 0.3, np.float32)


def quiet(ms: float) -> Samples:
    return np.zeros(round(ms * RATE_HZ / 1000), np.float32)
