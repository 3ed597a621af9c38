"""Words of speech that is going on. Each guess corrects the last; only what two in a row agree on is told."""

from __future__ import annotations


class StableWords:
    """Turns guesses at the same speech, each longer than the last, into text that only grows."""

    def __init__(self) -> None:
        self._last: list[str] = []
        self._told = 0

    def guessed(self, text: str) -> str:
        """What can be told now beyond what was told; empty: nothing new."""
        words = text.split()
        agreed = 0
        for old, new in zip(self._last, words, strict=False):
            if old != new:
                break
            agreed += 1
        self._last = words
        fresh = words[self._told : agreed]
        if not fresh:
            return ""
        lead = " " if self._told else ""
        self._told = agreed
        return lead + " ".join(fresh)
