"""Text that others wrote can never act as a control token of the model.

``neutralise`` puts one space after every character that starts a control token (``<`` for the packs
that ship), so that no token survives or is formed by joining pieces; and one at the start of each further
line, so that none can pose as a line of Vigil's own, a section header for instance. It is injective:
``restore`` takes those spaces out again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from prompts.pack import Pack

LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBERED = re.compile(r"<\\([0-9a-f]{4})>")


def control_tokens(pack: Pack) -> frozenset[str]:
    """Every string that means something to the model: template tokens, tags and their variants."""
    return frozenset((*pack.control_tokens, *pack.tags.all, *pack.tags.variants))


@cache
def _opener(tokens: frozenset[str]) -> re.Pattern[str]:
    openers = {token[0] for token in tokens} | {"<"}
    for char in openers:
        if char.isalnum() or char.isspace():
            raise ValueError(f"a control token may not start with {char!r}: it would break ordinary words")
    if any(len(token) < 2 for token in tokens):
        raise ValueError("a control token of one character cannot be neutralised")
    return re.compile("[" + re.escape("".join(sorted(openers)) + LINE_BREAKS) + "]")


def neutralise(text: str, tokens: Iterable[str]) -> str:
    """``text`` with every control token broken; injective. Raises ``ValueError`` for unusable tokens.

    Lone surrogates, which no request body can carry, become their number between ``<\\`` and ``>``:
    no other output has anything but a space after ``<``.
    """
    known = tokens if isinstance(tokens, frozenset) else frozenset(tokens)
    broken = _opener(known).sub(lambda found: found[0] + " ", text)
    if broken.startswith(("[", " ")):
        broken = " " + broken
    return _SURROGATE.sub(lambda found: f"<\\{ord(found[0]):x}>", broken)


def restore(text: str, tokens: Iterable[str]) -> str:
    """The inverse of ``neutralise``."""
    known = tokens if isinstance(tokens, frozenset) else frozenset(tokens)
    whole = _NUMBERED.sub(lambda found: chr(int(found[1], 16)), text)
    if whole.startswith(" "):
        whole = whole[1:]
    return re.sub(f"({_opener(known).pattern}) ", r"\1", whole)
