"""``Speaker``: turns the words of a response into sound while they are still being written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bridges.timing import Durations


class SpeechError(Exception):
    """The speaker can't go on with this text; what it gave before stands.

    :param code: ``speech_failed``, ``speech_timeout`` or the speaker's own
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class SpokenChunk:
    """:param pcm: PCM16 little-endian mono at the speaker's rate; a whole number of samples
    :param chars: characters of the text, counted from its beginning, that are spoken when this ends
    :param instead: why another voice than the one that was set up speaks, if one does: an error's code
    """

    pcm: bytes
    chars: int
    instead: str | None = None


class Speaker(Protocol):
    """One for all sessions. What it says may be cut off at any chunk, so chunks are short (200 ms or so)."""

    @property
    def rate_hz(self) -> int: ...

    def speak(
        self, words: AsyncIterator[str], voice: str | None, language: str | None
    ) -> AsyncGenerator[SpokenChunk, None]:
        """Sound for one text, whose words come bit by bit.

        How many of them it wants before it begins (a clause, a sentence) is its own matter; it asks for words
        only as it needs them. Ends after the last word. Closing the generator ends the work at once.

        :raises SpeechError: it can't go on
        """

    def statistics(self) -> Mapping[str, int]:
        """Of all sessions: what runs, what waits, what came of it."""

    @property
    def first_sound(self) -> Durations:
        """From the first words of a text to its first sound."""

    async def aclose(self) -> None:
        """When every session has ended."""
