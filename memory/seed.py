"""The text with which a fresh engine session is told what was said before it."""

from __future__ import annotations

from memory.spoken import SpokenMemory
from memory.tokens import clip, estimate
from memory.utterances import clock

LEAST_SHARE = 3
"""A persona that would be left less than this part of the seed goes alone."""


def seed_text(memory: SpokenMemory, seed_max_tokens: int, persona: str | None, now_ms: int) -> str:
    """``persona`` as it is, then the record of the conversation, in at most ``seed_max_tokens`` (estimated).

    What was said last goes in first, word for word; then older talk, then notes, newest first; what found no
    room is counted in the text. What others said is neutralised and framed as data. The persona is the
    client's own instruction and is cut only where it leaves no room for the last turn. The same facts give
    the same bytes.
    """
    own = (persona or "").strip()
    if memory.empty:
        return clip(own, seed_max_tokens)
    frame = _Frame(memory, now_ms)
    room = seed_max_tokens - frame.least - 1
    if estimate(own) > room:
        if room < seed_max_tokens // LEAST_SHARE:
            return clip(own, seed_max_tokens)
        own = clip(own, room)
    record = frame.fill(seed_max_tokens - (estimate(own + "\n\n") if own else 0))
    if not record:
        return own
    return f"{own}\n\n{record}" if own else record


class _Frame:
    """The record's fixed lines, and what goes between them."""

    def __init__(self, memory: SpokenMemory, now_ms: int) -> None:
        spoken, history = memory.spoken, memory.history
        tell = spoken.telling
        self._tell = tell
        recent = memory.recent
        said = [index for index, line in enumerate(recent) if line.text and line.who != "frames"]
        self._last = said[-1] if said else len(recent) - 1
        self._talk = [spoken.line(line) for line in recent]
        self._notes = [
            spoken.passage(p.start_ms, p.end_ms, p.text) for p in (*history.blocks, *history.summaries)
        ]
        forgotten = history.forgotten_before_ms
        self._top = [tell.line("header", now=clock(now_ms)), tell.line("notice")]
        if self._talk and not memory.transcribed:
            self._top.append(tell.line("untranscribed"))
        if forgotten is not None:
            self._top.append(tell.line("forgotten", time=clock(forgotten)))
        self._footer = tell.line("footer")
        entries = len(self._talk) + len(self._notes)
        self._fixed = (
            *self._top,
            tell.line("recent"),
            tell.line("left_out", count=str(entries)),
            self._footer,
        )

    @property
    def tokens(self) -> int:
        """Of the lines that are always there, the count of what is left out among them."""
        return sum(estimate(line + "\n") for line in self._fixed)

    @property
    def least(self) -> int:
        """Tokens of a record that holds what was said last, and no more."""
        newest = self._talk[self._last : self._last + 1] or self._notes[-1:]
        return self.tokens + sum(estimate(entry + "\n") for entry in newest)

    def fill(self, room: int) -> str:
        """The record in at most ``room`` tokens; empty where not even its frame fits."""
        left = room - self.tokens
        talk, left = self._fitting_talk(left)
        notes: list[str] = []
        if len(talk) == len(self._talk):
            notes, left = _fitting(self._notes, left - estimate(self._tell.line("earlier") + "\n"))
        if not talk and self._talk and left >= 8:
            talk = [clip(self._talk[self._last], left - 1)]
        if not talk and not notes:
            return ""
        gone = len(self._talk) + len(self._notes) - len(talk) - len(notes)
        lines = [*self._top]
        if gone:
            lines.append(self._tell.line("left_out", count=str(gone)))
        if notes:
            lines += (self._tell.line("earlier"), *notes)
        if talk:
            lines += (self._tell.line("recent"), *talk)
        return "\n".join((*lines, self._footer))

    def _fitting_talk(self, room: int) -> tuple[list[str], int]:
        """What was shown since the last words takes no room of theirs."""
        words, shown = self._talk[: self._last + 1], self._talk[self._last + 1 :]
        last = estimate(words[-1] + "\n") if words else 0
        after, left = _fitting(shown, max(0, room - last))
        talk, left = _fitting(words, left + min(last, room))
        return talk + after, left


def _fitting(entries: list[str], room: int) -> tuple[list[str], int]:
    """The newest entries that fit, in order, and the room that is left."""
    kept: list[str] = []
    for entry in reversed(entries):
        cost = estimate(entry + "\n")
        if cost > room:
            break
        room -= cost
        kept.append(entry)
    return kept[::-1], room
