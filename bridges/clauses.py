"""``Clauses``: cuts words that come bit by bit into pieces that can be said one after the other.

A piece ends with a sentence, a line or a clause; where it grows too long, at a space, or where the text has
no spaces (Chinese, Japanese, Thai) between two characters. The first piece may be short, so that the first
sound comes soon. Whatever the cuts, the pieces put together are the text, and no cut falls inside what is
read as one character. The time comes from outside.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_ENDS = "。！？｡；"
"""End a sentence wherever they stand: these scripts put no space behind."""
_CLAUSE_ENDS = "，、：､"
_CLOSERS = "\"'”’»)]}」』）】》〉］*_`~"
_SENTENCE = re.compile(rf"(?:[.!?…؟।]+[{re.escape(_CLOSERS)}]*(?=\s)|[{_ENDS}]+[{re.escape(_CLOSERS)}]*)\s*")
_CLAUSE = re.compile(
    rf"(?:[,;:،—–]+[{re.escape(_CLOSERS)}]*(?=\s)|[{_CLAUSE_ENDS}]+[{re.escape(_CLOSERS)}]*)\s*"
)
_LINE = re.compile(r"\s*\n\s*")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\s(\[\"'“‘]+$")

_ABBREVIATIONS = frozenset(
    re.split(
        " ",
        "mr mrs ms dr prof st sr jr vs etc no vol fig approx inc ltd co corp dept est min max "
        "e.g i.e a.m p.m u.s u.k z.b d.h bzw ca nr usw m mme mlle sra av",
    )
)
"""Behind them a full stop ends nothing."""

_JOINERS = frozenset("\u200d\u200c\u034f")


@dataclass(frozen=True, slots=True)
class ClauseRules:
    """Lengths in characters, times in seconds.

    :param first_min: a first piece has that many, unless it is a sentence
    :param clause_min: a later piece ends at a comma only if it has that many; else it goes on
    :param longest: no piece is longer
    :param patience_s: when the first words have waited that long, they are said without waiting for an end
    :param patience_min: ... if there are that many characters
    """

    first_min: int = 10
    clause_min: int = 60
    longest: int = 240
    patience_s: float = 0.5
    patience_min: int = 16


class Clauses:
    """Sans-IO. ``push`` words, ``finish`` at the end; at ``due_at`` call ``late``."""

    def __init__(self, rules: ClauseRules = ClauseRules()) -> None:
        self._rules = rules
        self._waiting = ""
        self._since: float | None = None
        self._first = True

    @property
    def waiting(self) -> str:
        """What is not cut off yet; a sentence's length at most."""
        return self._waiting

    @property
    def due_at(self) -> float | None:
        """When the first words will have waited long enough."""
        if not self._first or self._since is None or len(self._waiting) < self._rules.patience_min:
            return None
        return self._since + self._rules.patience_s

    def push(self, words: str, now: float) -> list[str]:
        """Add words; the pieces that are complete with them."""
        if words and self._since is None:
            self._since = now
        self._waiting += words
        pieces: list[str] = []
        while (end := self._end()) is not None:
            pieces.append(self._cut(end))
        return pieces

    def late(self, now: float) -> list[str]:
        """The first words, if they have waited long enough and there is a space to cut at."""
        due_at = self.due_at
        if due_at is None or now < due_at:
            return []
        end = _last_space(self._waiting, len(self._waiting))
        if end is None and not _spaced(self._waiting):
            end = safe_cut(self._waiting, len(self._waiting) - 1)
        if not end:
            self._since = now
            return []
        return [self._cut(end)]

    def finish(self) -> list[str]:
        """The rest, when no more words come."""
        pieces: list[str] = []
        while len(self._waiting) > self._rules.longest:
            pieces.append(self._cut(self._forced()))
        if self._waiting:
            pieces.append(self._cut(len(self._waiting)))
        return pieces

    def _cut(self, end: int) -> str:
        piece, self._waiting = self._waiting[:end], self._waiting[end:]
        self._first = False
        return piece

    def _end(self) -> int | None:
        """Where the next piece ends, once that is certain: what follows may still belong to it."""
        text, rules = self._waiting, self._rules
        least = rules.first_min if self._first else rules.clause_min
        for found in _candidates(text):
            end = found.end()
            if end > rules.longest:
                break
            if end == len(text):
                return None  # a closing quote or more space may follow
            kind = text[found.start()]
            if "\n" in found.group() or kind in _ENDS:
                return safe_cut(text, end)
            if kind in ".!?…؟।" and not _abbreviates(text, found.start()):
                return safe_cut(text, end)
            dense = kind in _CLAUSE_ENDS
            if (kind in ",;:،—–" and end >= least) or (dense and end * 3 >= least):
                return safe_cut(text, end)
        return self._forced() if len(text) > rules.longest else None

    def _forced(self) -> int:
        longest = self._rules.longest
        return _last_space(self._waiting, longest) or safe_cut(self._waiting, longest)


def _candidates(text: str) -> list[re.Match[str]]:
    found = [match for pattern in (_SENTENCE, _CLAUSE, _LINE) for match in pattern.finditer(text)]
    return sorted(found, key=lambda match: match.end())


def _abbreviates(text: str, stop: int) -> bool:
    """The full stop there belongs to an abbreviation, an initial or the number of a list."""
    if text[stop] != "." or text[stop : stop + 2] == "..":
        return False
    word = _WORD.search(text[:stop])
    if word is None:
        return False
    name = word.group().lower()
    initial = len(name) == 1 and name.isalpha() and name != "i" and word.group().isupper()
    begins = not text[: word.start()].strip() or text[: word.start()].rstrip(" \t").endswith("\n")
    return name in _ABBREVIATIONS or initial or (name.isdigit() and len(name) <= 2 and begins)


def _spaced(text: str) -> bool:
    """A script that puts spaces between words."""
    return any(char.isspace() for char in text) or text.isascii()


def _last_space(text: str, before: int) -> int | None:
    """The end of the last space before that place where a cut breaks nothing, if words stand before it."""
    end = None
    for match in _SPACE.finditer(text, 0, before):
        at = match.end()
        if match.start() > 0 and not (at < len(text) and joins(text[at - 1], text[at])):
            end = at
    return end


def joins(before: str, after: str) -> bool:
    """The two characters are read as one: a cut between them would break what a reader sees."""
    if before in _JOINERS or after in _JOINERS or (before == "\r" and after == "\n"):
        return True
    if unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True  # skin tones, and the tags of a region's flag
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    return _regional(before) and _regional(after)


def _regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def safe_cut(text: str, end: int) -> int:
    """The nearest place at or before ``end``, else behind it, where a cut breaks nothing."""
    end = min(end, len(text))
    at = end
    while 0 < at < len(text) and joins(text[at - 1], text[at]):
        at -= 1
    if at > 0:
        return at
    while end < len(text) and joins(text[end - 1], text[end]):
        end += 1
    return end
