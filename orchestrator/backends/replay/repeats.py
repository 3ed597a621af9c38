"""What was spoken lately, and a guard that holds text back while it may still turn out to be a repeat.

Rule: two lines are compared after case folding and with runs of whitespace as one space; their likeness is
``2 * LCS / (len(a) + len(b))`` over characters (LCS: longest common subsequence; 1.0 means equal). Text is
held while *some* continuation of it could still reach the wanted likeness, and released at once when none
can, so nothing that was released is ever taken back.

Cost in latency: none for text that begins differently. At likeness 1.0 text is held for as long as it is
a prefix of a recent line. At likeness r < 1 it is held about ``(2 / r - 2) * len(line)`` characters longer:
6 characters of a 60-character line at r = 0.95.
"""

from __future__ import annotations

from dataclasses import dataclass


def folded(text: str) -> str:
    """The form in which lines are compared."""
    return _Fold().feed(text)


class _Fold:
    """``folded`` for a stream: deltas in, folded deltas out."""

    def __init__(self) -> None:
        self._begun = False
        self._space = False

    def feed(self, text: str) -> str:
        out: list[str] = []
        for char in text:
            if char.isspace():
                self._space = self._begun
                continue
            if self._space:
                out.append(" ")
                self._space = False
            out.append(char.casefold())
            self._begun = True
        return "".join(out)


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    media_time_ms: int


class SpokenLines:
    """The last spoken lines since the last genuine silence, each speakable again after ``rearm_s``.

    A line is a repeat when it equals the last spoken one, or when speech has begun to swing between two
    lines (A, B, A): then the other one counts as well, until a silence or the time re-arms it.
    """

    def __init__(self, rearm_s: float) -> None:
        self._rearm_ms = int(rearm_s * 1000)
        self._lines: list[_Line] = []

    def spoken(self, text: str, media_time_ms: int) -> None:
        self._lines = [*self._lines[-2:], _Line(folded(text), media_time_ms)]

    def silence(self) -> None:
        """A genuine silence: the next alarm is news, whatever its words."""
        self._lines = []

    def repeats(self, media_time_ms: int) -> tuple[str, ...]:
        """Folded lines that may not be said again at this time."""
        lines = self._lines[-1:]
        if len(self._lines) == 3 and self._lines[0].text == self._lines[2].text:
            lines = self._lines[1:]
        return tuple(x.text for x in lines if media_time_ms - x.media_time_ms < self._rearm_ms)


class _Likeness:
    """How like a growing text is, and can still become, to one line (bit-parallel LCS)."""

    def __init__(self, line: str) -> None:
        self._size = len(line)
        self._all = (1 << self._size) - 1
        self._row = self._all
        self._at: dict[str, int] = {}
        for i, char in enumerate(line):
            self._at[char] = self._at.get(char, 0) | 1 << i
        self._length = 0

    def feed(self, text: str) -> None:
        for char in text:
            both = self._row & self._at.get(char, 0)
            self._row = ((self._row + both) | (self._row - both)) & self._all
        self._length += len(text)

    def now(self) -> float:
        common = self._size - self._row.bit_count()
        return 2 * common / max(1, self._length + self._size)

    def best(self) -> float:
        """The likeness if the text went on with the best possible rest of the line."""
        best, common = 0.0, 0
        for j in range(self._size + 1):
            rest = self._size - j
            best = max(best, 2 * (common + rest) / max(1, self._length + rest + self._size))
            common += 1 - (self._row >> j & 1)
        return best


class RepeatGuard:
    """Holds the text of one answer back while it may be a repeat of one of ``lines`` (folded)."""

    def __init__(self, lines: tuple[str, ...], ratio: float) -> None:
        self._ratio = ratio
        self._fold = _Fold()
        self._open = [_Likeness(line) for line in lines if line]
        self._held = ""

    def feed(self, text: str) -> str:
        """Text that may be shown now."""
        if not self._open:
            return text
        self._held += text
        fresh = self._fold.feed(text)
        for likeness in self._open:
            likeness.feed(fresh)
        self._open = [x for x in self._open if x.best() >= self._ratio]
        return "" if self._open else self._release()

    def finish(self) -> tuple[bool, str]:
        """(the whole was a repeat, text still held)."""
        repeat = bool(self._held) and any(x.now() >= self._ratio for x in self._open)
        return repeat, "" if repeat else self._release()

    def _release(self) -> str:
        held, self._held = self._held, ""
        return held
