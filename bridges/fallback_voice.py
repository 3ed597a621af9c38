"""A voice that another one stands in for: what the first can't say, the second does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from bridges.circuit import Clock
from bridges.clause_speaker import RATE_HZ, RawSound, Synthesiser
from bridges.speech import SpeechError

REST_S, LONGEST_REST_S = 5.0, 60.0
"""How long a voice that is away is not asked: doubled each time that it still is."""
_ANSWERS = frozenset({"speech_refused", "speech_format"})
"""Of a voice that is there, and says at once that it won't: it costs nothing to ask again."""


class FallbackVoice:
    """See ``Synthesiser``. What a stand-in says is marked (``RawSound.instead``).

    A text is never said twice: one that breaks off in the middle is left there, and the next one goes on.
    """

    def __init__(self, first: Synthesiser, second: Synthesiser, clock: Clock) -> None:
        self._first = first
        self._second = second
        self._clock = clock
        self._away: str | None = None
        self._rest_s = REST_S
        self._until = float("-inf")
        self.instead = 0

    def statistics(self) -> Mapping[str, int]:
        """Those of the first voice, and how many texts the second one had to say."""
        return {**self._first.statistics(), "instead": self.instead}

    async def aclose(self) -> None:
        await self._first.aclose()
        await self._second.aclose()

    async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        heard = False
        if self._away is None or self._clock.now() >= self._until:
            try:
                async with aclosing(self._first.say(text, voice, language)) as sound:
                    async for raw in sound:
                        heard = True
                        yield raw
                self._away, self._rest_s = None, REST_S
                return
            except SpeechError as error:
                self._leave_alone(error.code)
        why = self._away or "speech_failed"
        if heard:
            yield RawSound(np.zeros(0, np.int16), RATE_HZ, instead=why)
            return
        self.instead += 1
        # Names of voices are the first one's own.
        async with aclosing(self._second.say(text, None, language)) as sound:
            async for raw in sound:
                yield replace(raw, instead=why)

    def _leave_alone(self, code: str) -> None:
        still = self._away is not None
        self._away = code
        if code in _ANSWERS:
            return
        self._rest_s = min(2 * self._rest_s, LONGEST_REST_S) if still else REST_S
        self._until = self._clock.now() + self._rest_s
