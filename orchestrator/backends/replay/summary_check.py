"""Is a summary usable? Pure checks of what a summarizer gave back."""

from __future__ import annotations

from orchestrator.backends.replay.tags import Grammar, Hit
from orchestrator.backends.summaries import runs_away


def summary_fault(grammar: Grammar, text: str, finish_reason: str, max_chars: int) -> str | None:
    """Why this summary cannot be used: ``empty``, ``tags``, ``too_long``, ``repetition``; ``None``: it can.

    :param finish_reason: ``length`` means the summarizer was cut off
    :param max_chars: characters the memory has room for
    """
    if not text.strip():
        return "empty"
    if any(isinstance(piece, Hit) for piece in grammar.pieces(text)):
        return "tags"
    if runs_away(text):
        return "repetition"
    if finish_reason == "length" or len(text) > max_chars:
        return "too_long"
    return None
