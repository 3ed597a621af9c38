"""Requests to a summarizer about talk. What was said is data, neutralised when the want was made."""

from __future__ import annotations

from typing import Any

from memory.plan import WantRollup
from memory.spoken import SpokenWant
from memory.utterances import clock
from prompts.conversation import NAMES, Telling


def spoken_messages(want: SpokenWant, telling: Telling, target: int) -> list[dict[str, Any]]:
    """OpenAI messages, text alone. ``target``: tokens asked for."""
    rollup = isinstance(want, WantRollup)
    prompt = (telling.rollup if rollup else telling.summary).format(
        start=clock(want.start_ms),
        end=clock(want.end_ms),
        language=NAMES.get(telling.language, telling.language),
        target=target,
    )
    texts = want.texts if isinstance(want, WantRollup) else want.lines
    between = "\n\n" if rollup else "\n"
    return [{"role": "user", "content": prompt + "\n\n" + between.join(texts)}]
