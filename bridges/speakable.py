"""``Speakable``: what a piece of shown text sounds like.

Markup, tags, code, addresses, emoji and control characters are for the eye. What is shown stays as it is;
only what goes to a synthesiser is changed here, piece by piece, and a piece may come out as nothing.
"""

from __future__ import annotations

import html
import re
import unicodedata

_FENCE = re.compile(r"```+|~~~+")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>|<!--.*?-->", re.DOTALL)
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\([^)\s]*\)")
_LINK_TAIL = re.compile(r"\]\((?:[^()\s]|\([^()\s]*\))*\)")
_LINK_HEAD = re.compile(r"\[(?=\S)")
_ADDRESS = re.compile(
    r"\b(?:https?|wss?|ftp|rtsp)://([^\s/?#<>()\"']+)[^\s<>()\"'，。！？、]*|\bwww\.[^\s/?#]+(?:/\S*)?"
)
_MAIL = re.compile(r"\bmailto:", re.IGNORECASE)
_LINE_START = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+•‣][ \t]+|\|)", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$|^[ \t|:-]+$", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])[*_~]{1,3}(?=\S)|(?<=\S)[*_~]{1,3}(?![A-Za-z0-9])|\*\*|~~|__")
_SPACES = re.compile(r"\s+")
_TRAILING_STOPS = ".,;:!?"
_KEYCAP = re.compile("([0-9#*])\ufe0f?\u20e3")


class Speakable:
    """Keeps from piece to piece whether it is inside a block of code, which is shown and not said."""

    def __init__(self) -> None:
        self._in_code = False

    def of(self, piece: str) -> str:
        """What to say for the piece, one line; empty: nothing."""
        said = "".join(self._outside_code(piece))
        said = _TAG.sub(" ", said)
        said = html.unescape(said)
        said = _PICTURE.sub(r"\1", said)
        said = _LINK_TAIL.sub("", said)
        said = _ADDRESS.sub(_host, said)
        said = _MAIL.sub("", said)
        said = _LINK_HEAD.sub("", said)
        said = _RULE.sub(" ", said)
        said = _LINE_START.sub("", said)
        said = said.replace("`", "").replace("|", ", ")
        said = _EMPHASIS.sub("", said)
        said = _KEYCAP.sub(r"\1", said)
        said = "".join(map(_sounding, said))
        said = _SPACES.sub(" ", said).strip()
        return said if any(char.isalnum() or _is_symbol(char) for char in said) else ""

    def _outside_code(self, piece: str) -> list[str]:
        kept: list[str] = []
        at = 0
        for fence in _FENCE.finditer(piece):
            if not self._in_code:
                kept.append(piece[at : fence.start()])
            self._in_code = not self._in_code
            at = fence.end()
        if not self._in_code:
            kept.append(piece[at:])
        return kept


def _host(address: re.Match[str]) -> str:
    """An address is called by its host; a stop behind it belongs to the sentence."""
    whole = address.group()
    stop = whole[len(whole.rstrip(_TRAILING_STOPS)) :]
    host = (address.group(1) or whole.split("/")[0]).rsplit("@", 1)[-1].rstrip(_TRAILING_STOPS)
    return host.removeprefix("www.").split(":")[0] + stop


def _is_symbol(char: str) -> bool:
    """A sign that has a name, like a plus or a currency."""
    return unicodedata.category(char) in ("Sm", "Sc") or char in "%&@°"


def _sounding(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Cc", "Zl", "Zp"):
        return " "
    if category == "Cf":
        return char if char == "\u200c" else ""  # it parts letters in some scripts
    if category in ("Cs", "Co", "Cn", "Sk") and char not in "^`":
        return ""
    if category == "So" and char != "°":
        return " "
    return "" if "\ufe00" <= char <= "\ufe0f" or char in "^`" else char
