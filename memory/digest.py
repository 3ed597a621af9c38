"""Notes without a summarizer: the newest lines of a stretch of talk, and how many older ones are left out."""

from __future__ import annotations

from collections.abc import Sequence

from memory.tokens import clip, estimate
from prompts.conversation import Telling


def newest(pieces: Sequence[str], tokens: int, telling: Telling, separator: str = " / ") -> str:
    """``pieces`` (oldest first) in at most ``tokens``: the oldest go first, and the text says how many.

    A piece that does not fit beside the newer ones is left out whole; of the newest alone a part stays.
    """
    joined = separator.join(pieces)
    if estimate(joined) <= tokens:
        return joined
    kept: list[str] = []
    for piece in reversed(pieces):
        note = telling.line("left_out", count=str(len(pieces) - len(kept) - 1))
        longer = separator.join((note, piece, *reversed(kept)))
        if estimate(longer) > tokens:
            break
        kept.append(piece)
    if kept:
        note = telling.line("left_out", count=str(len(pieces) - len(kept)))
        return separator.join((note, *reversed(kept)))
    note = telling.line("left_out", count=str(len(pieces) - 1))
    room = tokens - estimate(note + separator)
    alone = clip(pieces[-1], room) if len(pieces) > 1 and room > 0 else ""
    return note + separator + alone if alone else clip(pieces[-1], tokens)
