"""Is a summary usable? Pure checks of what a summarizer gave back."""

from __future__ import annotations

import re
from collections import Counter

from orchestrator.backends.replay.tags import Grammar, Hit

_SENTENCE = re.compile(r"[^.!?\n。！？]+")
_MIN_SENTENCE = 8
_MAX_SAME = 3
_MAX_RUN = 5
_MAX_PERIOD = 40


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


def runs_away(text: str) -> bool:
    """True when a sentence comes back again and again, or the text ends in a loop."""
    sentences = Counter(s.strip().casefold() for s in _SENTENCE.findall(text))
    if any(n > _MAX_SAME for s, n in sentences.items() if len(s) >= _MIN_SENTENCE):
        return True
    tail = text.rstrip()
    for period in range(1, _MAX_PERIOD + 1):
        unit = tail[-period:]
        times = _MAX_RUN if period > 1 else 4 * _MAX_RUN  # rows of dots or dashes are not a loop
        if len(unit) == period and tail.endswith(unit * times):
            return True
    return False


def shortened(text: str, max_chars: int) -> str:
    """The whole sentences at the beginning of a text that was cut off; empty when there is none."""
    head = text.strip()[:max_chars]
    ends = [m.end() for m in re.finditer(r"[.!?](?=\s)|[。！？\n]", head)]
    return head[: ends[-1]].strip() if ends else ""
