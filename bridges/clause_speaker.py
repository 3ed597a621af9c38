"""``ClauseSpeaker``: a ``Speaker`` out of something that can say one short text at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from bridges.circuit import Clock
from bridges.clauses import ClauseRules, Clauses, safe_cut
from bridges.sound import Samples, Sound
from bridges.speakable import Speakable
from bridges.speech import SpeechError, SpokenChunk
from bridges.timing import Durations

RATE_HZ = 24000
"""Of every speaker made here, whatever its synthesiser's own."""

_CHARS_PER_S = 15.0
"""How fast a text is said until its own pace is known; places the marks inside a piece."""


@dataclass(frozen=True, slots=True)
class RawSound:
    """Samples of a synthesiser at its own rate. ``instead``: see ``SpokenChunk``."""

    samples: Samples
    rate_hz: int
    instead: str | None = None


class Synthesiser(Protocol):
    """Says one short text; one for all sessions. Closing the generator ends the work at once."""

    def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        """Sound for a text of one line that is not empty.

        :raises SpeechError: it can't
        """

    def statistics(self) -> Mapping[str, int]: ...

    async def aclose(self) -> None: ...


class ClauseSpeaker:
    """See ``Speaker``."""

    rate_hz = RATE_HZ

    def __init__(self, synthesiser: Synthesiser, clock: Clock, rules: ClauseRules | None = None) -> None:
        self._synthesiser = synthesiser
        self._clock = clock
        self._rules = rules or ClauseRules()
        self.texts = 0
        self.failed = 0
        self.cut = 0
        self.first_sound = Durations()

    def statistics(self) -> Mapping[str, int]:
        """Texts begun, of them failed and cut off; and what the synthesiser tells."""
        own = {"texts": self.texts, "failed": self.failed, "cut": self.cut}
        return {**own, **self._synthesiser.statistics()}

    async def aclose(self) -> None:
        await self._synthesiser.aclose()

    async def speak(
        self, words: AsyncIterator[str], voice: str | None, language: str | None
    ) -> AsyncGenerator[SpokenChunk, None]:
        self.texts += 1
        speakable, text = Speakable(), _Text(self._clock, words)
        begin, pace = 0, _CHARS_PER_S
        try:
            async with aclosing(_pieces(text.words(), Clauses(self._rules), self._clock)) as pieces:
                async for piece in pieces:
                    said, spoken_s = speakable.of(piece), 0.0
                    held: bytes = b""
                    if said:
                        async with aclosing(self._chunks(said, voice, language, text)) as chunks:
                            async for chunk in chunks:
                                if text.began_at is not None:
                                    self.first_sound.add(self._clock.now() - text.began_at)
                                    text.began_at = None
                                if held:
                                    mark = begin + _mark(piece, int(spoken_s * pace))
                                    yield SpokenChunk(held, mark, text.instead)
                                held = chunk.astype("<i2").tobytes()
                                spoken_s += len(chunk) / RATE_HZ
                    begin += len(piece)
                    yield SpokenChunk(held, begin, text.instead)
                    if spoken_s:
                        pace = len(piece) / spoken_s
        except SpeechError:
            self.failed += 1
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self.cut += 1
            raise

    async def _chunks(
        self, said: str, voice: str | None, language: str | None, text: _Text
    ) -> AsyncGenerator[Samples, None]:
        sound: Sound | None = None
        async with aclosing(self._synthesiser.say(said, voice, language)) as raws:
            async for raw in raws:
                text.instead = text.instead or raw.instead
                if sound is None:
                    sound = Sound(raw.rate_hz, RATE_HZ)
                for chunk in sound.push(raw.samples):
                    yield chunk
        if sound is not None:
            for chunk in sound.push(raw.samples[:0], last=True):
                yield chunk


class _Text:
    """One text on its way. ``began_at``: its first words came, and no sound of it left yet."""

    def __init__(self, clock: Clock, words: AsyncIterator[str]) -> None:
        self._clock = clock
        self._words = words
        self.began_at: float | None = None
        self.instead: str | None = None

    async def words(self) -> AsyncIterator[str]:
        first = True
        async for word in self._words:
            if first:
                self.began_at, first = self._clock.now(), False
            yield word


def _mark(piece: str, guess: int) -> int:
    """Characters of a piece that are said so far, before it is over."""
    guess = min(guess, len(piece) - 1)
    at = safe_cut(piece, guess) if guess > 0 else 0
    return at if at <= guess else 0


async def _pieces(words: AsyncIterator[str], clauses: Clauses, clock: Clock) -> AsyncGenerator[str, None]:
    """The pieces of the text in order; asks for words only while none is complete."""
    coming: asyncio.Future[str | None] | None = None
    ready: deque[str] = deque()
    try:
        while True:
            if ready:
                yield ready.popleft()
                continue
            if coming is None:
                coming = asyncio.ensure_future(_next(words))
            await _until(coming, clauses.due_at, clock)
            if not coming.done():
                ready.extend(clauses.late(clock.now()))
                continue
            word, coming = coming.result(), None
            if word is None:
                break
            ready.extend(clauses.push(word, clock.now()))
        for piece in clauses.finish():
            yield piece
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})


async def _next(words: AsyncIterator[str]) -> str | None:
    return await anext(words, None)


async def _until(coming: asyncio.Future[str | None], due_at: float | None, clock: Clock) -> None:
    """Return when the words are there, or at the time that is due."""
    if due_at is None:
        await asyncio.wait({coming})
        return
    timer = asyncio.ensure_future(clock.sleep(max(0.0, due_at - clock.now())))
    both: set[asyncio.Future[Any]] = {coming, timer}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        await asyncio.wait({timer})
