"""Requests to a summarizer about talk, whose words were neutralised when the want was made, and pictures."""

from __future__ import annotations

from typing import Any

from memory.plan import WantRollup, WantSummary
from memory.spoken import SpokenWant
from memory.utterances import clock
from prompts.conversation import NAMES, Telling


def spoken_messages(want: SpokenWant, telling: Telling, target: int) -> list[dict[str, Any]]:
    """OpenAI messages, text alone. ``target``: tokens asked for."""
    rollup = isinstance(want, WantRollup)
    prompt = _asked(telling.rollup if rollup else telling.summary, want, telling, target)
    texts = want.texts if isinstance(want, WantRollup) else want.lines
    between = "\n\n" if rollup else "\n"
    return [{"role": "user", "content": prompt + "\n\n" + between.join(texts)}]


def picture_messages(want: WantSummary, telling: Telling, target: int) -> list[dict[str, Any]]:
    """The request, then each key frame after its time, by uuid."""
    prompt = _asked(telling.pictures, want, telling, target)
    content: list[dict[str, Any]] = [{"type": "text", "text": prompt + "\n"}]
    for frame in want.frames:
        content.append({"type": "text", "text": clock(frame.media_time_ms)})
        content.append({"type": "image_url", "uuid": frame.uuid})
    return [{"role": "user", "content": content}]


def _asked(request: str, want: SpokenWant | WantSummary, telling: Telling, target: int) -> str:
    return request.format(
        start=clock(want.start_ms),
        end=clock(want.end_ms),
        language=NAMES.get(telling.language, telling.language),
        target=target,
    )
