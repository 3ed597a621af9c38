"""The voice of one response: words in, chunks of sound and the words they say out, in the pace of playing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from bridges.speech import Speaker, SpeechError, SpokenChunk
from orchestrator.session.backend import (
    AudioDelta,
    BackendOutput,
    Clock,
    Notice,
    SessionConfig,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.fence import Fence

LATEST_S = 10.0
"""That much later than it could be a client may play, and is waited for."""
_DROP_S = 1.0
"""Real seconds that a speaker may take to stop; one that ignores being stopped is abandoned."""


@dataclass(frozen=True, slots=True)
class VoiceTools:
    """See ``SpokenOptions``."""

    speaker: Speaker
    clock: Clock
    lead_s: float
    stuck_s: float
    waiting_chars: int


class Voice:
    """Speaks from the first word to the turn's end, then passes that end on.

    :param put: takes outputs; may wait
    :param on_over: told when nothing more will be said
    """

    def __init__(
        self,
        fence: Fence,
        config: SessionConfig,
        tools: VoiceTools,
        put: Callable[[BackendOutput], Awaitable[None]],
        on_over: Callable[[Voice], None],
    ) -> None:
        self.fence = fence
        self.over = asyncio.Event()
        """Set when nothing more will be said, for whatever reason."""
        self._config = config
        self._tools = tools
        self._put = put
        self._on_over = on_over
        self._text = ""
        self._told = 0  # characters that went out
        self._words: deque[str] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._end: TurnEnd | None = None
        self._mute = False
        self._stood_in = False
        self._samples = 0
        self._first_at: float | None = None
        self._began_at = 0.0  # when its playing began, as far as is known
        self._busy_since: float | None = None
        self._speaking: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name="voice")

    @property
    def ended(self) -> bool:
        """No more words will come."""
        return self._end is not None

    async def say(self, text: str) -> None:
        """Add words; waits while too many wait already. Once it is over they are dropped."""
        while self._size >= self._tools.waiting_chars and not (self._mute or self.over.is_set()):
            self._changed.clear()
            await self._changed.wait()
        self._text += text
        if not self._mute:
            self._words.append(text)
            self._size += len(text)
        self._changed.set()

    def end(self, end: TurnEnd) -> None:
        self._end = end
        self._changed.set()

    def shorten(self) -> None:
        """Speak no further; the rest of the text and the end go out at once."""
        self._hush()
        if self._speaking is not None:
            self._speaking.cancel()

    def played(self, played_ms: int) -> None:
        """It was played up to there: a client that pauses, or plays late, is not sent more than the lead. One
        that does not get on with it does not keep the session from going on."""
        if (first := self._first_at) is not None:
            began = self._tools.clock.now() - played_ms / 1000
            self._began_at = min(max(first, began), first + LATEST_S)

    async def drop(self) -> None:
        """Say no more. What was put out already is not taken back here."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=_DROP_S)
        self._over()

    # --- speaking -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            if not self._mute:
                self._speaking = asyncio.create_task(self._speak(), name="voice")
                await asyncio.wait({self._speaking})
                if not self._speaking.cancelled():
                    self._speaking.result()
            while self._end is None:
                self._changed.clear()
                await self._changed.wait()
            await self._tell(len(self._text))
            await self._put(self._end)
        finally:
            if self._speaking is not None and not self._speaking.done():
                self._speaking.cancel()
                await asyncio.wait({self._speaking}, timeout=_DROP_S)
            self._over()

    async def _speak(self) -> None:
        tools, config = self._tools, self._config
        try:
            sound = tools.speaker.speak(self._next_words(), config.voice, config.language)
            async with aclosing(sound):
                while (chunk := await self._next(sound)) is not None:
                    await self._in_time()
                    await self._out(chunk)
        except SpeechError as error:
            await self._fail(error)
        except Exception as fault:  # a speaker's fault costs the sound of one response, never the session
            await self._fail(SpeechError("speech_failed", type(fault).__name__))

    async def _fail(self, error: SpeechError) -> None:
        self._hush()
        told = f"the speech bridge failed ({error.code}); the rest of this answer is text alone"
        await self._put(Notice("quality_reduced", told))

    def _hush(self) -> None:
        self._mute = True
        self._words.clear()
        self._size = 0
        self._changed.set()

    async def _out(self, chunk: SpokenChunk) -> None:
        if chunk.instead is not None and not self._stood_in:
            self._stood_in = True
            told = f"the voice that was set up does not speak ({chunk.instead}); another one does"
            await self._put(Notice("quality_reduced", told))
        await self._tell(min(chunk.chars, len(self._text)))
        if not chunk.pcm:
            return
        rate = self._tools.speaker.rate_hz
        if self._first_at is None:
            self._first_at = self._began_at = self._tools.clock.now()
        self._samples += len(chunk.pcm) // 2
        mark = (self._told, self._samples * 1000 // rate)
        await self._put(AudioDelta(self.fence, chunk.pcm, rate, (mark,)))

    async def _tell(self, chars: int) -> None:
        """Put out the text up to there, if that was not done."""
        if chars > self._told:
            await self._put(TextDelta(self.fence, self._text[self._told : chars]))
            self._told = chars  # afterwards: whoever is cut off while waiting has put nothing

    async def _in_time(self) -> None:
        """Wait until the sound made so far is no more than the lead ahead of its playing."""
        if self._first_at is None:
            return
        tools = self._tools
        made_s = self._samples / tools.speaker.rate_hz
        while (early_s := self._began_at + made_s - tools.lead_s - tools.clock.now()) > 1e-6:
            await tools.clock.sleep(early_s)

    # --- the speaker ----------------------------------------------------------------------------------------

    async def _next_words(self) -> AsyncIterator[str]:
        while True:
            if self._words:
                words = self._words.popleft()
                self._size -= len(words)
                self._changed.set()
                self._busy_since = self._tools.clock.now()
                yield words
            elif self._end is not None:
                self._busy_since = self._tools.clock.now()
                return
            else:
                self._busy_since = None  # it waits for us, not we for it
                self._changed.clear()
                await self._changed.wait()

    async def _next(self, sound: AsyncGenerator[SpokenChunk, None]) -> SpokenChunk | None:
        """The next chunk; ``None`` at the end. A speaker that has words and says nothing is given up."""
        if self._busy_since is not None:
            self._busy_since = self._tools.clock.now()
        chunk = asyncio.ensure_future(anext(sound, None))
        stuck = asyncio.ensure_future(self._stuck())
        try:
            await asyncio.wait({chunk, stuck}, return_when=asyncio.FIRST_COMPLETED)
            if not chunk.done():
                raise SpeechError("speech_timeout", f"no sound within {self._tools.stuck_s:g} s")
            return chunk.result()
        finally:
            for task in (chunk, stuck):
                task.cancel()
            await asyncio.wait({chunk, stuck}, timeout=_DROP_S)

    async def _stuck(self) -> None:
        """Return when the speaker has been busy without a sound for too long."""
        clock, limit = self._tools.clock, self._tools.stuck_s
        left = limit
        while left > 0:
            await clock.sleep(left)
            left = limit if self._busy_since is None else self._busy_since + limit - clock.now()

    def _over(self) -> None:
        if not self.over.is_set():
            self.over.set()
            self._changed.set()
            self._words.clear()
            self._on_over(self)
