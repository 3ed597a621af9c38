"""Marks and sound of a text, whatever it is made of and however its words come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridges.clause_speaker import RATE_HZ, ClauseSpeaker, RawSound
from bridges.clauses import joins
from bridges.speech import SpokenChunk
from tests.fakes.clock import VirtualClock

PARTS = [
    "A dog, ",
    "and a cat. ",
    "👩‍👩‍👧",
    "e\u0301",
    "```",
    "红车到了。",
    "<b>",
    "\n",
    "https://a.b/c ",
    "\ud83d",
    "3.5",
]
WORDS = st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=30)


class Toner:
    """Says a tone of 60 ms for each character."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        self.texts.append(text)
        count = 16 * 60 * len(text)
        tone = (8000 * np.sin(np.arange(count) * 0.3)).astype(np.int16)
        for at in range(0, count, 3001):
            yield RawSound(tone[at : at + 3001], 16000)

    def statistics(self) -> dict[str, int]:
        return {"said": len(self.texts)}

    async def aclose(self) -> None: ...


def spoken(words: list[str]) -> tuple[list[SpokenChunk], Toner]:
    toner = Toner()

    async def come() -> AsyncIterator[str]:
        for word in words:
            yield word

    async def speak() -> list[SpokenChunk]:
        return [chunk async for chunk in ClauseSpeaker(toner, VirtualClock()).speak(come(), None, None)]

    return asyncio.run(speak()), toner


@given(WORDS)
def test_marks_only_grow_and_end_with_the_text(words: list[str]) -> None:
    text = "".join(words)
    chunks, toner = spoken(words)
    marks = [chunk.chars for chunk in chunks]
    assert marks == sorted(marks)
    assert (marks[-1] if marks else 0) == len(text)
    assert all(not joins(text[mark - 1], text[mark]) for mark in marks if 0 < mark < len(text))
    assert all(len(chunk.pcm) % 2 == 0 and len(chunk.pcm) <= 2 * RATE_HZ // 5 for chunk in chunks)
    assert bool(toner.texts) is any(chunk.pcm for chunk in chunks)
