"""A native session's memory as plain data for people: tiers as text, times and estimated tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.history import Passage
from memory.spoken import SpokenMemory
from memory.tokens import estimate
from memory.utterances import Utterance

SPOKEN_RENDERER = 1000
"""Of a log that this memory folds. Versions of the renderers of prompts count from 1."""


def describe_spoken(memory: SpokenMemory) -> dict[str, Any]:
    """Every tier, oldest first. ``talk``: what was said lately, ``who`` being user, model or frames."""
    return {
        "media_time_ms": memory.now_ms,
        "long_term": _passages(memory.history.blocks),
        "summaries": _passages(memory.history.summaries),
        "talk": [_line(line) for line in memory.recent],
    }


def _passages(found: Sequence[Passage]) -> list[dict[str, Any]]:
    return [
        {
            "start_ms": passage.start_ms,
            "end_ms": passage.end_ms,
            "last_chunk": passage.chunk,
            "text": passage.text,
            "tokens": estimate(passage.text),
        }
        for passage in found
    ]


def _line(line: Utterance) -> dict[str, Any]:
    """``cut``: the user did not hear the rest of it."""
    return {
        "who": line.who,
        "start_ms": line.start_ms,
        "end_ms": line.end_ms,
        "text": line.text,
        "cut": line.cut,
        "frames": line.count,
        "tokens": line.tokens,
    }
