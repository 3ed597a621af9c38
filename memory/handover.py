"""From one window to the next: the drafted head, its prewarming in small steps, and when to switch.

Steps count upwards. While pieces of the head are still to come a step's number is negative (-2, -1);
from 0 on it is the number of turns of the next window that are warm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memory.plan import Head, Plan, Turn, WantPrewarm
from memory.window import WindowTurn

STEP_TOKENS = 2048  # new tokens of one prewarm request, at the most
SMALL_STEP_TOKENS = 512  # the same of later ones: a tick may come at any moment and wait for it
LARGE_STEPS = 2  # after an answer
FAILURES = 2  # failed prewarms after which the switch goes cold
CHASES = 2  # turns answered after all was warm, from which on the newest answer may stay cold
PATIENCE = 8  # the same, from which on the switch waits no longer
EARLY_TICKS = 3  # target of a requested early handover


@dataclass(frozen=True, slots=True)
class Draft:
    """A head to be frozen and where its window starts.

    :param start_seq: first carried turn
    :param boundary: the turn before which chunks are told by text or gap marker
    :param revision: state of history that the head tells
    :param changes: counter of the settings' changes that the head includes
    """

    head: Head
    head_tokens: int
    start_seq: int
    boundary: int
    revision: int
    changes: int
    reason: str
    first_frame_ms: int | None


@dataclass(slots=True)
class Handover:
    """A frozen head on its way to become live.

    :param large_steps: that may still be made. They are made after an answer, when the next tick is as far
        away as it ever is. Two of them, so that where each step is outrun by an answer all are large
    """

    draft: Draft
    pieces: list[Head] = field(default_factory=list)
    pieces_done: int = 0
    warm_turns: int = 0
    warm_flight: int | None = None
    reached: bool = False
    failures: int = 0
    chases: int = 0
    at_once: bool = False
    large_steps: int = LARGE_STEPS

    def ready(self, turns: Sequence[WindowTurn]) -> bool:
        """All turns are warm, or, where prewarms keep being outrun, all but the newest answer; or waiting is
        no use."""
        if self.at_once or self.failures >= FAILURES or self.chases >= PATIENCE:
            return True
        missing = turns[self.warm_turns :]
        if not missing or not self.reached:
            return self.reached
        asked_warm = len(missing) == 1 and missing[0].turn.tick == self.warm_flight
        return asked_warm and self.chases >= CHASES

    def answered(self) -> None:
        """A turn was added behind what is warm."""
        self.large_steps = LARGE_STEPS
        self.chases += self.reached

    def want(
        self, window: int, turns: Sequence[WindowTurn], flight: Turn | None = None
    ) -> WantPrewarm | None:
        """The next step, or ``None`` when nothing is left to warm. ``flight``: the turn being answered."""
        head = self.draft.head
        if self.pieces_done < len(self.pieces):
            piece = self.pieces[self.pieces_done]
            return WantPrewarm(
                head.version,
                self.pieces_done - len(self.pieces),
                Plan(window, piece, (), None, generate=False),
            )
        if self.reached and self.warm_turns >= len(turns):
            return None
        if self.reached and flight is None and self.chases >= CHASES:
            return None  # without the turn that comes next this step would be outrun as well
        along = flight if self.chases else None
        step = STEP_TOKENS if self.large_steps else SMALL_STEP_TOKENS
        return prewarm(window, head, turns, self.warm_turns, along, step)

    def prewarmed(self, step: int, ok: bool, turns: int, flight: int | None = None) -> None:
        """A step ended, which took tick ``flight`` along. A failed one is passed over: the next covers what
        it left cold."""
        self.large_steps = max(0, self.large_steps - 1)
        if not ok:
            self.failures += 1
        if step < 0:
            self.pieces_done = max(self.pieces_done, len(self.pieces) + step + 1)
            return
        self.pieces_done = len(self.pieces)
        self.warm_turns = max(self.warm_turns, step)
        self.warm_flight = flight if ok else None
        self.reached = self.reached or self.warm_turns >= turns - 1

    def cold(self) -> None:
        """The engine lost its cache: warming what the old window needs as well would only delay."""
        self.at_once = True


def prewarm(
    window: int,
    head: Head,
    turns: Sequence[WindowTurn],
    warm: int,
    flight: Turn | None = None,
    step: int = STEP_TOKENS,
) -> WantPrewarm:
    """A plan of all warm turns and as many further ones as fit ``step`` tokens (at least one).

    The last step takes ``flight`` along, the turn being answered: where ticks come so fast that each step is
    outrun by one, the tick that begins the window then finds all but that turn's answer warm.
    """
    upto, tokens = warm, 0
    while upto < len(turns):
        tokens += turns[upto].tokens
        if upto > warm and tokens > step:
            break
        upto += 1
    along = flight if upto == len(turns) else None
    plan = Plan(window, head, tuple(t.turn for t in turns[:upto]), along, generate=False)
    return WantPrewarm(head.version, upto, plan, along.tick if along else None)
