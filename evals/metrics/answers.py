"""Is a reply right? Rules that need no language model. Pure.

Each rule reads one thing out of a reply, and says ``None`` where it reads none or more than one: a reply that
names two letters or two numbers has not answered.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from evals.readers.clip import Judging, Slot

_ARTICLES = frozenset({"a", "an", "the"})
_WORD = re.compile(r"[^\W_]+(?:[.,:/]?\d+)*", re.UNICODE)

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBERS = {word: n for n, word in enumerate((*_ONES, *_TEENS, "nineteen"))}
_NUMBERS |= {word: 20 + 10 * n for n, word in enumerate(_TENS)}
_NUMBERS |= {"none": 0, "never": 0, "once": 1, "twice": 2, "thrice": 3}
_FIGURES = re.compile(r"(?<![\w.:/])[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w%:/]|\.\d)")
_SPELLED = re.compile(r"[a-z]+(?:-[a-z]+)?")

_LETTER = re.compile(r"(?<![^\W_])([A-Z])(?![^\W_])(?!['’])")
_NAMED_LETTER = re.compile(
    r"\b(?:answer|option|choice)\b(?:\s+(?:is|would\s+be))?\s*:?\s*[(\[\"'*]*([A-Z])\b(?!['’])", re.IGNORECASE
)
_WORD_AFTER = re.compile(r"\s+(?!(?:or|and|but|is|as|because|since)\b)[a-z]")
_LEADING_LETTER = re.compile(r"^[(\[\"'*]*([A-Za-z])(?:[)\].:\"'*]+(?:\s|$)|$)")


def normal(text: str) -> str:
    """Words in lower case with one space between; punctuation and articles are gone, figures stay whole."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(word for word in _WORD.findall(folded) if word not in _ARTICLES)


def letter(reply: str, choices: Sequence[str] = (), count: int | None = None) -> str | None:
    """The one letter that a reply names, ``A`` to the last there is.

    In this order: it begins with a letter as a list does (``B``, ``b)``, ``(B) red``), it says "answer B" or
    "option B", one capital letter stands alone in it (an "A" before a word in lower case is an article), or
    it holds the text of one option and no other.

    :param choices: texts of the options; ``count``: how many there are, where their texts are not known
    """
    last = chr(ord("A") + (len(choices) or count or 26) - 1)
    text = reply.strip()
    if begins := _LEADING_LETTER.match(text):
        named = {begins[1].upper()}
    elif said := _NAMED_LETTER.findall(text):
        named = {one.upper() for one in said}
    else:
        named = {m[1] for m in _LETTER.finditer(text) if not _is_a_word(m, text)}
    named = {one for one in named if one <= last}
    if len(named) > 1:
        return None
    if named:
        return named.pop()
    # The longest text wins where one option is part of another: "red" and "red car".
    held = sorted(
        (n for n, option in enumerate(choices) if holds(reply, option)), key=lambda n: -len(choices[n])
    )
    if not held or any(not holds(choices[held[0]], choices[other]) for other in held[1:]):
        return None
    return chr(ord("A") + held[0])


def _is_a_word(match: re.Match[str], text: str) -> bool:
    """``A`` as an article and ``I`` as a pronoun: a word in lower case follows that does not join letters."""
    return match[1] in "AI" and bool(_WORD_AFTER.match(text, match.end()))


def number(reply: str) -> float | None:
    """The one number that a reply names, in figures or in words to ninety-nine; the same one twice is one.

    Clock times, dates, percentages and figures within words ("00:10", "mp3") are no numbers here.
    """
    text = unicodedata.normalize("NFKC", reply)
    found = {float(m[0].replace(",", "").replace("−", "-")) for m in _FIGURES.finditer(text)}
    words = _SPELLED.findall(text.casefold())
    skip = False
    for place, word in enumerate(words):
        if skip:
            skip = False
            continue
        after = words[place + 1] if place + 1 < len(words) else ""
        if word in _TENS and _NUMBERS.get(after, 99) in range(1, 10):
            found.add(float(_NUMBERS[word] + _NUMBERS[after]))
            skip = True
        elif (spelled := _spelled(word)) is not None:
            found.add(float(spelled))
    return found.pop() if len(found) == 1 else None


def _spelled(word: str) -> int | None:
    tens, _, ones = word.partition("-")
    if not ones:
        return _NUMBERS.get(word)
    if tens in _TENS and _NUMBERS.get(ones, 99) in range(1, 10):
        return _NUMBERS[tens] + _NUMBERS[ones]
    return None


def yes_or_no(reply: str) -> str | None:
    """``Yes`` or ``No``, whichever a reply says as a word; ``Y`` and ``N`` where it says no more."""
    words = normal(reply).split()
    if words in (["y"], ["n"]):
        return "Yes" if words == ["y"] else "No"
    said = {word for word in words if word in ("yes", "no")}
    return said.pop().capitalize() if len(said) == 1 else None


def holds(reply: str, wanted: str) -> bool:
    """``wanted`` stands in the reply as whole words in a row: "3" is not in "13"."""
    inner = normal(wanted)
    return bool(inner) and f" {inner} " in f" {normal(reply)} "


def right(slot: Slot, reply: str) -> bool | None:
    """Whether a reply is right by the slot's own rule; ``None`` where a language model has to say."""
    match slot.judging:
        case Judging.ANY:
            return True
        case Judging.EXACT:
            return normal(reply) in {normal(one) for one in slot.accepted}
        case Judging.CONTAINS:
            return any(holds(reply, one) for one in slot.accepted)
        case Judging.CHOICE:
            return letter(reply, slot.choices) in slot.accepted
        case Judging.NUMBER:
            said = number(reply)
            return said is not None and said in {float(one) for one in slot.accepted}
        case Judging.YES_NO:
            return yes_or_no(reply) in slot.accepted
        case Judging.JUDGE:
            return None
