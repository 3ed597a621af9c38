"""What was said lately, word for word: the user's words as they were understood, the model's as heard."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from memory.neutral import neutralise
from memory.tokens import clip, estimate
from prompts.conversation import Telling

LINE_MARKS = 12
"""Tokens of a line beside its text: the time and who spoke."""
BRACKETS = frozenset({"[INST]", "[/INST]"})
"""Broken like all that begins with ``<``: some templates begin so, and the record's own frame does."""
FOLLOWED = 64
"""Responses of which more may still be heard."""
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f", "\u20e3"}


@dataclass(frozen=True, slots=True)
class Utterance:
    """One line of the record.

    :param who: ``user``, ``model``, ``frames``; ``looked_up`` and ``failed``: what came of a solver's work
    :param ref: item or response that it is of; ``offset``: characters of the response before this line
    :param cut: the response ended before the user had heard all of it
    :param count: pictures of a ``frames`` line, whose ``text`` tells what was to be seen in them, if anything
    """

    who: str
    start_ms: int
    end_ms: int
    text: str = ""
    ref: str = ""
    offset: int = 0
    cut: bool = False
    count: int = 0

    @property
    def shown(self) -> bool:
        """An empty line only keeps a place in time."""
        return bool(self.text) or self.count > 0

    @property
    def tokens(self) -> int:
        return estimate(self.text) + LINE_MARKS

    def render(self, telling: Telling, clean: Callable[[str], str]) -> str:
        time = clock(self.start_ms)
        if self.who == "frames":
            count = str(self.count)
            if not self.text:
                return telling.line("frames", time=time, count=count)
            return telling.line("seen", time=time, count=count, text=clean(self.text))
        name = "interrupted" if self.cut else self.who
        return telling.line(name, time=time, text=clean(self.text))


class Spoken:
    """The lines of one session's record: phrases of one language, what others said neutralised."""

    def __init__(self, telling: Telling) -> None:
        self.telling = telling

    def clean(self, text: str) -> str:
        return neutralise(text, BRACKETS)

    def line(self, line: Utterance) -> str:
        return line.render(self.telling, self.clean)

    def passage(self, start_ms: int, end_ms: int, text: str) -> str:
        return self.telling.line("passage", start=clock(start_ms), end=clock(end_ms), text=self.clean(text))


class Utterances:
    """The newest lines, in the order in which they were said.

    :param line_tokens: of one line; longer speech of the model goes on in a further one, a longer text of
        the user's is cut
    """

    def __init__(self, line_tokens: int) -> None:
        self._line_tokens = max(8, line_tokens)
        self.lines: deque[Utterance] = deque()
        self._filed: OrderedDict[str, int] = OrderedDict()
        """Characters of each response that are in lines, here or summarised."""

    @property
    def tokens(self) -> int:
        return sum(line.tokens for line in self.lines)

    def user(self, item_id: str, text: str, now_ms: int) -> bool:
        """The user said or wrote it; True where that changed anything."""
        said = clip(flat(text), self._line_tokens)
        for index, line in enumerate(self.lines):
            if line.who == "user" and line.ref == item_id:
                if said:
                    self.lines[index] = replace(line, text=said)
                else:
                    del self.lines[index]
                return line.text != said
        if said:
            self.lines.append(Utterance("user", now_ms, now_ms, said, item_id))
        return bool(said)

    def forget(self, item_id: str) -> bool:
        """The user deleted an item; what was summarised of it stays."""
        kept = [line for line in self.lines if line.ref != item_id]
        changed = len(kept) < len(self.lines)
        self.lines = deque(kept)
        return changed

    def frames(self, count: int, now_ms: int) -> None:
        last = self.lines[-1] if self.lines else None
        if last is not None and last.who == "frames" and not last.text:
            self.lines[-1] = replace(last, end_ms=now_ms, count=last.count + count)
        elif count > 0:
            self.lines.append(Utterance("frames", now_ms, now_ms, count=count))

    def describe(self, text: str, count: int, start_ms: int, end_ms: int) -> None:
        """What was to be seen in that many pictures, in its place in time; they are not counted any more."""
        said = clip(flat(text), self._line_tokens)
        if not said:
            return
        left, kept = count, deque[Utterance]()
        for line in self.lines:
            bare = line.who == "frames" and not line.text
            if bare and left and line.start_ms < end_ms and line.end_ms >= start_ms:
                taken = min(left, line.count)
                left -= taken
                if taken == line.count:
                    continue
                line = replace(line, start_ms=max(line.start_ms, end_ms), count=line.count - taken)
            kept.append(line)
        at = next((i for i, line in enumerate(kept) if line.start_ms > start_ms), len(kept))
        kept.insert(at, Utterance("frames", start_ms, end_ms, said, count=count))
        self.lines = kept

    def note(self, who: str, ref: str, text: str, now_ms: int) -> None:
        """What came of something else than talk."""
        self.lines.append(Utterance(who, now_ms, now_ms, clip(flat(text), self._line_tokens), ref))

    def heard(self, response_id: str, text: str, complete: bool, now_ms: int) -> bool:
        """``text``: all that was heard of the response until now, whatever was told before.

        ``complete``: nothing of what was said so far went unheard.
        """
        before = [(line.text, line.cut) for line in self.lines]
        mine = [i for i, line in enumerate(self.lines) if line.who == "model" and line.ref == response_id]
        while len(mine) > 1 and self.lines[mine[-1]].offset >= len(text):
            del self.lines[mine.pop()]
        if mine:
            line = self.lines[mine[-1]]
            rest = text[line.offset :]
            size = self._most(rest)
            last = size >= len(rest)
            self.lines[mine[-1]] = replace(
                line, text=flat(rest[:size]), end_ms=now_ms, cut=last and not complete
            )
            if not last:
                self._speak(response_id, rest[size:], line.offset + size, complete, now_ms)
        else:
            filed = self._filed.get(response_id, 0)
            if flat(text[filed:]) or response_id not in self._filed:
                self._speak(response_id, text[filed:], filed, complete, now_ms)
        self._follow(response_id, len(text))
        return [(line.text, line.cut) for line in self.lines] != before

    def _speak(self, response_id: str, text: str, offset: int, complete: bool, now_ms: int) -> None:
        """New lines for ``text``, each of at most the line's tokens."""
        while True:
            size = self._most(text)
            last = size >= len(text)
            cut = last and not complete
            self.lines.append(Utterance("model", now_ms, now_ms, flat(text[:size]), response_id, offset, cut))
            if last:
                return
            text, offset = text[size:], offset + size

    def _most(self, text: str) -> int:
        """Characters of ``text`` that one line holds, cut between words where there are any."""
        if estimate(text) <= self._line_tokens:
            return len(text)
        low, high = 1, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if estimate(text[:middle]) <= self._line_tokens:
                low = middle
            else:
                high = middle - 1
        space = text.rfind(" ", low // 2, low)
        return whole(text, space + 1 if space > 0 else low)

    def _follow(self, response_id: str, chars: int) -> None:
        self._filed[response_id] = max(chars, self._filed.get(response_id, 0))
        self._filed.move_to_end(response_id)
        while len(self._filed) > FOLLOWED:
            self._filed.popitem(last=False)

    def take(self, tokens: int) -> list[Utterance]:
        """Remove the oldest lines until what is left takes at most ``tokens``; the newest line stays."""
        taken: list[Utterance] = []
        left = self.tokens
        while len(self.lines) > 1 and left > tokens:
            line = self.lines.popleft()
            left -= line.tokens
            if line.shown:
                taken.append(line)
        return taken


def clock(ms: int) -> str:
    """Time of the conversation as ``m:ss`` or ``h:mm:ss``."""
    seconds = max(0, ms) // 1000
    minutes, hours = seconds // 60 % 60, seconds // 3600
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def flat(text: str) -> str:
    """``text`` on one line, without control characters."""
    return " ".join("".join(c for c in text if c.isspace() or unicodedata.category(c) != "Cc").split())


def whole(text: str, at: int) -> int:
    """``at``, or a place shortly before it where no character that is drawn as one is torn."""
    cut = at
    while 0 < cut < len(text) and _goes_on(text[cut - 1], text[cut]) and at - cut < 16:
        cut -= 1
    return cut if cut > 0 else at


def _goes_on(before: str, after: str) -> bool:
    return (
        before == "\u200d"
        or after in _JOINERS
        or unicodedata.combining(after) != 0
        or "\U0001f3fb" <= after <= "\U0001f3ff"
    )
