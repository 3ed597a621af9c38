"""What the sessions of one engine remember before their windows, and what that will come to. Sans-IO.

A head grows for hours, and whoever is admitted stays in, so that what is there now is not all that needs
room. How much one grows is learned from those that left, and from those that have stayed so long that their
memory is full: the growth of all by the number of these. Who still grows is in the sum and not in the
number, so that sessions that never leave are not taken for short ones. Each session needs what they come
to, or what it has and half of what it will yet grow, as they leave at different times; and who has stayed
long will stay as long again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

ENDED = 64
"""Sessions that ended last, whose growth is remembered."""
SETTLED_TICKS = 3
"""Answers after which a session counts as one that was here."""
LEAST = 2
"""Half of what was thought is kept for a head, however short sessions have been of late."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How heads grow, as pack and limits tell.

    :param thought: tokens of a head, on average, before any was counted
    :param full: tokens of one that can grow no more
    :param ticks: after which a session's head is such a one
    """

    thought: int
    full: int
    ticks: int


@dataclass(slots=True)
class _Seen:
    first: int
    tokens: int
    ticks: int = 0

    @property
    def grown(self) -> int:
        return max(0, self.tokens - self.first)


class Heads:
    """:param enough: sessions that must have told, and ended, before they are believed"""

    def __init__(self, growth: Growth, enough: int) -> None:
        self._growth = growth
        self._enough = enough
        self._seen: dict[str, _Seen] = {}
        self._ended: deque[int] = deque(maxlen=ENDED)

    def told(self, session: str, tokens: int) -> None:
        """A session's head as it is now."""
        seen = self._seen.setdefault(session, _Seen(tokens, tokens))
        seen.tokens = tokens
        seen.ticks += 1

    def left(self, session: str, *, over: bool) -> None:
        """``over``: the session ended; else it went elsewhere, and grows on there."""
        seen = self._seen.pop(session, None)
        if over and seen is not None and seen.ticks >= SETTLED_TICKS:
            self._ended.append(seen.grown)

    def tokens(self) -> int:
        """For which a session's head is to find room."""
        growth, seen = self._growth, tuple(self._seen.values())
        if len(seen) < self._enough:
            return growth.thought
        done = len(self._ended) + sum(map(self._is_full, seen))
        if done < self._enough:
            return max(growth.thought, sum(each.tokens for each in seen) // len(seen))
        to_come = (sum(self._ended) + sum(each.grown for each in seen)) / done
        needed = sum(self._needs(each, to_come) for each in seen) / len(seen)
        return max(growth.thought // LEAST, round(needed))

    def _needs(self, seen: _Seen, to_come: float) -> float:
        if self._is_full(seen):
            return seen.tokens
        comes_to = max(seen.first + to_come, seen.tokens + max(to_come, seen.grown) / 2)
        return min(max(self._growth.full, seen.tokens), comes_to)

    def _is_full(self, seen: _Seen) -> bool:
        return seen.ticks >= self._growth.ticks
