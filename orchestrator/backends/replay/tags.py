"""Find a model's tags in text that streams in, however the stream is cut.

A tag is found in every spelling that models are seen to use: the pack's own and its variants, any case,
with or without a slash on either side. Control tokens of the chat template are found exactly as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from prompts.pack import Tags

_ANGLE = re.compile(r"<\s*/?\s*([\w|-]+)\s*/?\s*>")
_MAX_SPACES = 2


class Kind(StrEnum):
    SILENCE = "silence"
    RESPONSE = "response"
    DELEGATION = "delegation"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Hit:
    """A tag or control token. ``canonical``: it is written as the pack writes it."""

    kind: Kind
    canonical: bool


class Grammar:
    """The tags and control tokens of one pack, prepared for scanning. Immutable, shared by sessions."""

    def __init__(self, tags: Tags, control_tokens: Iterable[str]) -> None:
        self.tags = tags
        kinds = {tags.silence: Kind.SILENCE, tags.response: Kind.RESPONSE}
        if tags.delegation:
            kinds[tags.delegation] = Kind.DELEGATION
        self._canonical = frozenset(kinds)
        for spelling, canonical in tags.variants.items():
            kinds[spelling] = kinds[canonical]
        self._names: dict[str, Kind] = {}
        self._words: dict[str, Kind] = {}
        for spelling, kind in kinds.items():
            if angle := _ANGLE.fullmatch(spelling):
                self._names[angle[1].lower()] = kind
            else:
                self._words[spelling.lower()] = kind
        self._controls = tuple(sorted({t for t in control_tokens if t and t not in kinds}, key=len))
        starts = {w[0] for w in self._words} | {w[0].upper() for w in self._words}
        self._starts = starts | {t[0] for t in self._controls} | ({"<"} if self._names else set())

    def match(self, text: str, at: int) -> tuple[Hit, int] | bool:
        """What begins at ``text[at]``: a hit and its end, True for a beginning that may become one, False."""
        if text[at] not in self._starts:
            return False
        found, partial = self._match_angle(text, at)
        if found:
            return found
        rest = text[at:]
        for word, kind in self._words.items():
            if rest[: len(word)].lower() == word:
                return Hit(kind, rest[: len(word)] in self._canonical), at + len(word)
            partial |= word.startswith(rest.lower())
        for token in self._controls:
            if rest.startswith(token):
                return Hit(Kind.CONTROL, True), at + len(token)
            partial |= token.startswith(rest)
        return partial

    def _match_angle(self, text: str, at: int) -> tuple[tuple[Hit, int] | None, bool]:
        """``<name>`` with slashes where they may be; spaces only where no ordinary text has them."""
        if not self._names or text[at] != "<":
            return None, False
        i = at + 1
        if text[i : i + 1] == "/":
            i = _skip_spaces(text, i + 1)
        start = i
        while i < len(text) and (text[i].isalnum() or text[i] in "_-|"):
            i += 1
        name = text[start:i].lower()
        if i == len(text):
            return None, any(known.startswith(name) for known in self._names)
        kind = self._names.get(name)
        if kind is None:
            return None, False
        i = _skip_spaces(text, i)
        if text[i : i + 1] == "/":
            i = _skip_spaces(text, i + 1)
        if i == len(text):
            return None, True
        if text[i] != ">":
            return None, False
        return (Hit(kind, text[at : i + 1] in self._canonical), i + 1), False

    def pieces(self, text: str) -> Iterator[str | Hit]:
        """A whole text cut into plain pieces and hits; a truncated tag at the end is left out."""
        scanner = Scanner(self)
        yield from scanner.feed(text)

    def without_tags(self, text: str) -> str:
        """The text with each tag and control token replaced by a line break, trimmed."""
        plain = [p.strip() for p in self._joined(text)]
        return "\n".join(p for p in plain if p)

    def _joined(self, text: str) -> Iterator[str]:
        run = ""
        for piece in self.pieces(text):
            if isinstance(piece, Hit):
                yield run
                run = ""
            else:
                run += piece
        yield run


def _skip_spaces(text: str, i: int) -> int:
    end = min(len(text), i + _MAX_SPACES)
    while i < end and text[i] == " ":
        i += 1
    return i


class Scanner:
    """Cuts a stream of deltas into plain text and hits. Holds back only what may still become a hit."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._held = ""

    def feed(self, delta: str) -> Iterator[str | Hit]:
        """Pieces that are now certain, in order."""
        text = self._held + delta
        self._held = ""
        plain, i = 0, 0
        while i < len(text):
            match self._grammar.match(text, i):
                case (hit, end):
                    if plain < i:
                        yield text[plain:i]
                    yield hit
                    plain = i = end
                case True:
                    self._held = text[i:]
                    break
                case _:
                    i += 1
        if plain < i:
            yield text[plain:i]

    @property
    def held(self) -> str:
        """At the end of the stream: a truncated tag, which nobody may see."""
        return self._held
