"""Text that stands at the beginning of a session's prompts, as memory and instructions do in long ones."""

from __future__ import annotations

import random

WORDS = (
    *("the", "a", "person", "cup", "door", "table", "light", "hand", "bike", "street", "window", "car"),
    *("moves", "turns", "opens", "stops", "waits", "comes", "goes", "falls", "stands", "looks"),
    *("left", "right", "slowly", "again", "then", "while", "and", "near", "behind", "before", "after"),
)


def head(mark: str, number: int, words: int) -> str:
    """So many words for the session of this number; no two sessions of a mark have the same."""
    chosen = random.Random(f"{mark}/{number}")
    return " ".join(chosen.choice(WORDS) for _ in range(words))
