"""A voice that is away is stood in for, nothing is said twice, and it is asked again when it has rested."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import numpy as np
import pytest

from bridges.clause_speaker import ClauseSpeaker, RawSound
from bridges.fallback_voice import LONGEST_REST_S, REST_S, FallbackVoice
from bridges.speech import SpeechError, SpokenChunk
from tests.fakes.clock import VirtualClock

SECOND = np.full(16000, 5000, np.int16)


class Scripted:
    """Says a second of sound for each text. ``fails``: the code with which it does not; ``after`` pieces."""

    def __init__(self, fails: str | None = None, after: int = 0) -> None:
        self.texts: list[str] = []
        self.voices: list[str | None] = []
        self.fails, self.after, self.closed = fails, after, False

    def statistics(self) -> dict[str, int]:
        return {"requests": len(self.texts)}

    async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        self.texts.append(text)
        self.voices.append(voice)
        for number in range(4):
            if self.fails and number == self.after:
                raise SpeechError(self.fails, "the script says so")
            yield RawSound(SECOND[number * 4000 : (number + 1) * 4000], 16000)

    async def aclose(self) -> None:
        self.closed = True


class Stand:
    def __init__(self, first: Scripted, second: Scripted | None = None) -> None:
        self.first, self.second, self.clock = first, second or Scripted(), VirtualClock()
        self.voice = FallbackVoice(self.first, self.second, self.clock)
        self.speaker = ClauseSpeaker(self.voice, self.clock)

    async def says(self, text: str = "A dog barks. A cat sleeps. ") -> list[SpokenChunk]:
        async def words() -> AsyncIterator[str]:
            yield text

        return [chunk async for chunk in self.speaker.speak(words(), "ann", "en")]


def seconds(chunks: list[SpokenChunk]) -> float:
    return sum(len(chunk.pcm) for chunk in chunks) / 48000


async def test_a_voice_that_speaks_is_not_stood_in_for() -> None:
    stand = Stand(Scripted())
    chunks = await stand.says()
    assert not stand.second.texts and {chunk.instead for chunk in chunks} == {None}
    assert stand.first.voices == ["ann"] * 2 and stand.speaker.statistics()["instead"] == 0
    assert len(stand.speaker.first_sound) == 1
    await stand.speaker.aclose()
    assert stand.first.closed and stand.second.closed


async def test_one_that_is_away_is_asked_once_and_what_speaks_instead_is_told() -> None:
    stand = Stand(Scripted("speech_unreachable"))
    chunks = await stand.says()
    assert (stand.first.texts, stand.second.texts) == (["A dog barks."], ["A dog barks.", "A cat sleeps."])
    assert {chunk.instead for chunk in chunks} == {"speech_unreachable"}
    assert seconds(chunks) == pytest.approx(2.0, abs=0.3) and chunks[-1].chars == 27
    assert stand.second.voices == [None] * 2, "names of voices are the first one's"
    assert stand.speaker.statistics() == {"texts": 1, "failed": 0, "cut": 0, "requests": 1, "instead": 2}


async def test_it_rests_longer_and_longer_and_speaks_again_when_it_is_back() -> None:
    stand = Stand(Scripted("speech_timeout"))
    rest = REST_S
    for asked in range(1, 8):
        await stand.says("Hello.")
        assert len(stand.first.texts) == asked
        await stand.clock.advance(rest - 0.01)
        await stand.says("Hello.")
        assert len(stand.first.texts) == asked, "it is left alone"
        await stand.clock.advance(0.02)
        rest = min(2 * rest, LONGEST_REST_S)
    stand.first.fails = None
    assert {chunk.instead for chunk in await stand.says("Hello.")} == {None}
    stand.first.fails = "speech_timeout"
    await stand.says("Hello.")
    await stand.clock.advance(REST_S + 0.01)
    await stand.says("Hello.")
    assert len(stand.first.texts) == 10, "its next rest is a short one again"


async def test_one_that_refuses_a_text_is_asked_for_the_next() -> None:
    stand = Stand(Scripted("speech_refused"))
    await stand.says()
    assert len(stand.first.texts) == len(stand.second.texts) == 2


async def test_what_breaks_off_is_not_said_again_and_the_next_clause_goes_on() -> None:
    stand = Stand(Scripted("speech_timeout", after=2))
    chunks = await stand.says()
    assert (stand.first.texts, stand.second.texts) == (["A dog barks."], ["A cat sleeps."])
    assert seconds(chunks) == pytest.approx(1.5, abs=0.3)
    assert chunks[-1].chars == 27 and chunks[-1].instead == "speech_timeout"


async def test_when_both_fail_the_text_goes_on_alone() -> None:
    stand = Stand(Scripted("speech_unreachable"), Scripted("speech_failed"))
    with pytest.raises(SpeechError) as told:
        await stand.says()
    assert told.value.code == "speech_failed" and stand.speaker.statistics()["failed"] == 1
