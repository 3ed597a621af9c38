"""How many sessions one engine of single requests carries. Sans-IO; times are monotonic seconds.

Three things limit it. Its KV cache must hold the sessions' windows, and its image cache their pictures:
known before anything runs, and once they are there from what they are. Whether it keeps up, and whether its
cache really holds what it should, is measured from the answers of live ticks. Where it does not, nobody
more is admitted; those who are in stay. Those who came last cost little as yet: their prompts are short, and
nothing of theirs is summarised before a window has filled. So near its limit an engine takes few at a time,
and others once these have shown what they cost. What a session asked for that has left says nothing about
the room it left: its answers go with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate

from orchestrator.backends.live_tick import LiveTick
from orchestrator.engines.heads import SETTLED_TICKS, Growth, Heads

WINDOW_S = 20.0
"""Answers older than this say nothing about now."""
ANSWERS = 1024
"""Answers remembered at most."""
ENOUGH = 20
"""Answers below which nothing is concluded."""
LATE, RECOVERED = 0.5, 0.4
"""The p95 of turns, in periods, at which an engine takes nobody more, and at which it does again. Not at a
whole period: near the edge each further session costs more than the one before, and what came too late is
worked off slowly."""
NEAR = 0.25
"""The same, from which on few are taken at a time: ``YOUNG`` of those that have been there for a window, and
at least one. Between light load and too much there are few sessions."""
YOUNG = 0.1
REUSE = 0.8
"""Share of the promised tokens that must come from the cache; below it is too small for its sessions."""
MEASURED = 16
"""Sessions whose turns were counted, from which what a session takes is no longer thought but known; where
less than twice as many are thought to fit, half of those are enough."""
NEWCOMER_S = 10.0
"""A session that asks nothing for so long costs nothing."""
NEWCOMERS, SHARE_OF_NEWCOMERS = 64, 2
"""Sessions whose cost has not been seen: so many at a time, or one for so many others."""
IMAGE_SHARE = 0.8
"""Of the image cache; what is beyond it is the engine's own slack."""
DEVIATIONS = 2.0
"""Standard deviations of the sum of all windows that find room."""
HANDOVERS = 0.1
"""Share of a window's life in which the next one is being warmed beside it."""


class Priority(IntEnum):
    """Classes of sessions: who is refused first, and whose ticks and returns go first."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


KEPT_BACK = 0.1
"""Of what an engine carries, for each higher class that there is."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one session takes of an engine.

    :param head: tokens before a window's turns, thought of before any were counted
    :param full_head: of one that can grow no more; ``full_after``: ticks until it is
    :param turn: tokens of a turn with one picture
    :param least_images: pictures at a window's beginning; ``most_images``: at its end
    :param image_bytes: of one picture in the engine's image cache
    """

    head: int
    full_head: int
    full_after: int
    turn: int
    least_images: int
    most_images: int
    image_bytes: int

    @property
    def least(self) -> int:
        """Tokens at a window's beginning. As many take the next head and overlap while both windows live."""
        return self.head + self.least_images * self.turn

    @property
    def most(self) -> int:
        """Tokens at a window's end."""
        return self.head + self.most_images * self.turn

    def tokens(self, sessions: int) -> float:
        return _sum_of(sessions, self.least, self.most) + self.least * math.ceil(sessions * HANDOVERS)

    def images(self, sessions: int) -> float:
        """Bytes of the image cache."""
        return _sum_of(sessions, self.least_images, self.most_images) * self.image_bytes


def _sum_of(sessions: int, least: float, most: float) -> float:
    """Windows grow evenly and each for itself: the mean of their sum and ``DEVIATIONS`` of it, never more
    than all of them full."""
    spread = DEVIATIONS * math.sqrt(sessions / 12) * (most - least)
    return min(sessions * most, sessions * (least + most) / 2 + spread)


def carries(need: Need, kv_tokens: int | None, image_bytes: int | None) -> int | None:
    """Sessions that find room; ``None``: nothing is known of the engine's caches. At least one."""
    bounds = []
    if kv_tokens is not None:
        bounds.append(_largest(lambda n: need.tokens(n) <= kv_tokens))
    if image_bytes is not None:
        bounds.append(_largest(lambda n: need.images(n) <= IMAGE_SHARE * image_bytes))
    return max(1, min(bounds)) if bounds else None


@dataclass(frozen=True, slots=True)
class Caches:
    """What an engine's caches hold, and what a session is thought to take of them.

    :param need: ``None``: nothing is known of it
    """

    need: Need | None
    kv_tokens: int | None
    image_bytes: int | None

    def carry(self, turn: int | None, head: int | None) -> int | None:
        """Sessions that find room. ``turn`` and ``head``: tokens of them, where they were counted."""
        need = self.need
        if need is None:
            return None
        need = replace(
            need, turn=need.turn if turn is None else turn, head=need.head if head is None else head
        )
        return carries(need, self.kv_tokens, self.image_bytes)


def _largest(fits: Callable[[int], bool]) -> int:
    low, high = 0, 1
    while high < 2**20 and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(slots=True)
class _Guest:
    priority: Priority
    entered_at: float
    ticks: int = 0
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    session: str
    at: float
    periods: float
    kept: int
    promised: int

    @property
    def turns(self) -> int:
        """That came and went until it was known: nobody asked for those that this one was in the way of.
        Without them an engine would be late less often the later it is."""
        return 1 + int(self.periods)


class Room:
    """The sessions of one engine.

    :param caches: ``None``: nothing is known of them
    :param classes: that sessions may be of: some room is kept for the higher ones
    """

    def __init__(
        self, caches: Caches | None, classes: frozenset[Priority] = frozenset({Priority.NORMAL})
    ) -> None:
        self._caches = caches
        thought = caches.carry(None, None) if caches is not None else None
        self._enough = MEASURED if thought is None else max(1, min(MEASURED, thought // 2))
        need = caches.need if caches is not None else None
        self._heads = (
            None if need is None else Heads(Growth(need.head, need.full_head, need.full_after), self._enough)
        )
        self._most: tuple[tuple[int | None, int | None], int | None] | None = None
        self._classes = classes
        self._guests: dict[str, _Guest] = {}
        self._answers: deque[_Answer] = deque(maxlen=ANSWERS)
        self._behind = False
        self._period_s = 0.0
        self.ticks = dict.fromkeys(("answered", "late", "coalesced", "refused"), 0)
        """Live ticks so far. Late: decided more than a period after they could have been asked."""

    @property
    def most(self) -> int | None:
        """Sessions that the caches carry; ``None``: nothing is known of them.

        Pictures may be smaller than the largest that are allowed, and memories too. Once enough sessions are
        there it counts what their turns take on average, and what their heads have and will come to.
        """
        if self._caches is None:
            return None
        turns = [guest.turn for guest in self._guests.values() if guest.turn is not None]
        turn = round(sum(turns) / len(turns)) if len(turns) >= self._enough else None
        head = None if self._heads is None else self._heads.tokens()
        if self._most is None or self._most[0] != (turn, head):
            self._most = (turn, head), self._caches.carry(turn, head)
        return self._most[1]

    def holds(self, kv_tokens: int) -> None:
        """What the engine says of its KV cache now: one that was started anew may have another."""
        if self._caches is not None and self._caches.kv_tokens != kv_tokens:
            self._caches = replace(self._caches, kv_tokens=kv_tokens)
            self._most = None

    def __len__(self) -> int:
        return len(self._guests)

    def __contains__(self, session: str) -> bool:
        return session in self._guests

    def enter(self, session: str, priority: Priority, now: float) -> None:
        """A session is on this engine from now on; one that is already stays as it is."""
        self._guests.setdefault(session, _Guest(priority, now))

    def leave(self, session: str, *, over: bool) -> None:
        """``over``: it ended; else it went to another engine."""
        self._guests.pop(session, None)
        if self._heads is not None:
            self._heads.left(session, over=over)
        kept = (answer for answer in self._answers if answer.session != session)
        self._answers = deque(kept, maxlen=ANSWERS)

    def answered(self, session: str, now: float, tick: LiveTick) -> None:
        """A live tick was answered."""
        self.ticks["answered"] += 1
        self.ticks["late"] += tick.lateness_s > tick.period_s
        self.ticks["coalesced"] += tick.coalesced
        guest = self._guests.get(session)
        self._period_s = tick.period_s
        if guest is not None:
            guest.ticks += 1
            guest.turn = tick.turn_tokens
            if self._heads is not None and tick.head_tokens is not None:
                self._heads.told(session, tick.head_tokens)
        periods = tick.lateness_s / tick.period_s
        self._answers.append(_Answer(session, now, periods, tick.kept, tick.promised))

    def refused(self, session: str, now: float, periods: float) -> None:
        """A live tick found no turn within so many periods; that is as good as an answer so late."""
        self.ticks["refused"] += 1
        self._answers.append(_Answer(session, now, periods, 0, 0))

    def holds_one_more(self, beside: int) -> bool:
        """As far as its caches go, however late it is. ``beside``: sessions of others that are on it too."""
        most = self.most
        return most is None or len(self._guests) + beside < most

    def full(self, priority: Priority, now: float, beside: int = 0) -> str | None:
        """Why no session of this class is admitted now; ``None``: there is room.

        :param beside: sessions of others that are on this engine too
        """
        most = self.most
        if most is not None and len(self._guests) + beside >= self._share(most, priority):
            return f"its caches carry {most} sessions"
        if self._newcomers(now) >= max(NEWCOMERS, len(self._guests) // SHARE_OF_NEWCOMERS):
            return "it has not answered those yet that came last"
        answers = self._recent(now)
        if len(answers) < ENOUGH:
            self._behind = False
            return None
        late = _p95(answers)
        self._behind = late > (RECOVERED if self._behind else LATE)
        if self._behind:
            return f"it needs {late:.2f} of the sessions' period to decide, and must have time to spare"
        if late > NEAR and (young := self._young(now)) >= max(1, int(YOUNG * (len(self._guests) - young))):
            return "it is near its limit, and what those cost that came last has yet to show"
        promised = sum(answer.promised for answer in answers)
        if promised and sum(answer.kept for answer in answers) < REUSE * promised:
            return "its cache loses what the sessions need again"
        return None

    def statistics(self, now: float) -> dict[str, float]:
        """``late``: p95 of recent turns in periods; ``reuse``: of the promised tokens."""
        answers = self._recent(now)
        promised = sum(answer.promised for answer in answers)
        return {
            "sessions": float(len(self._guests)),
            "newcomers": float(self._newcomers(now)),
            "late": _p95(answers) if answers else 0.0,
            "reuse": sum(answer.kept for answer in answers) / promised if promised else 1.0,
        }

    def _share(self, most: int, priority: Priority) -> int:
        higher = sum(other > priority for other in self._classes)
        return max(1, int(most * (1 - KEPT_BACK * higher)))

    def _newcomers(self, now: float) -> int:
        return sum(
            guest.ticks < SETTLED_TICKS and now - guest.entered_at < NEWCOMER_S
            for guest in self._guests.values()
        )

    def _young(self, now: float) -> int:
        """Sessions that have not been there for as long as a window takes to fill."""
        need = self._caches.need if self._caches is not None else None
        window_s = 0.0 if need is None else (need.most_images - need.least_images) * self._period_s
        return sum(
            now - guest.entered_at < (window_s if guest.ticks else NEWCOMER_S)
            for guest in self._guests.values()
        )

    def _recent(self, now: float) -> list[_Answer]:
        while self._answers and self._answers[0].at < now - WINDOW_S:
            self._answers.popleft()
        return list(self._answers)


def _p95(answers: list[_Answer]) -> float:
    """Of the periods of all their turns; there is at least one."""
    below = int(0.95 * sum(answer.turns for answer in answers))
    ordered = sorted(answers, key=lambda answer: answer.periods)
    counted = accumulate(answer.turns for answer in ordered)
    return next(answer.periods for answer, turns in zip(ordered, counted, strict=True) if turns > below)
