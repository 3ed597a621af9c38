"""The one place where this session's memory is written: each fact goes into the folds and to the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memory.audit import PrefixAudit
from memory.facts import AnyFact, FrameDropped, FrameSeen, TickAnswered, TickBegun, fact_data
from memory.fold import Memory
from orchestrator.backends.replay.decide import DecisionPolicy
from orchestrator.session.backend import FactLog


@dataclass(frozen=True, slots=True)
class WaitingFrame:
    """A frame that no answered tick has shown yet. ``admitted_at``: monotonic seconds; ``operation_id``: of
    the append that brought it."""

    frame_id: str
    uuid: str
    media_time_ms: int
    lossless: bool
    admitted_at: float
    operation_id: str | None


class Journal:
    """Log, memory, decision policy and prefix audit of one session, always at the same fact.

    :param on_fact: told of every fact after it was folded, memory's own moves included
    """

    def __init__(
        self,
        log: FactLog,
        memory: Memory,
        policy: DecisionPolicy,
        audit: PrefixAudit,
        now: Callable[[], float],
        on_fact: Callable[[AnyFact], None],
    ) -> None:
        self.memory = memory
        self.policy = policy
        self.audit = audit
        self.waiting: dict[str, WaitingFrame] = {}
        self.last_tick = 0
        self._log = log
        self._now = now
        self._on_fact = on_fact
        self._riding: tuple[str, ...] = ()
        self._written = self._shown = 0  # newest entries: of memory's, and of those before the tick began

    def write(self, fact: AnyFact) -> None:
        """Fold and log a fact, then every move that memory makes because of it.

        A fact that memory refuses (by raising) is not logged.
        """
        self._fold(fact)
        if isinstance(fact, TickBegun):
            self._shown = self._written
        self._written = self._log.append(fact.kind, fact_data(fact))
        self._moves()

    def restore(self, facts: Sequence[AnyFact]) -> None:
        """Fold what the log already holds; a move that was due when it ended is written now."""
        for fact in facts:
            if isinstance(fact, TickAnswered):
                self.audit.observe(self.memory, fact)
            self._fold(fact)
        self._moves()

    def _moves(self) -> None:
        while moves := self.memory.moves():
            for move in moves:
                self._fold(move)
                self._written = self._log.append(move.kind, fact_data(move))

    async def flush(self) -> None:
        """Return when everything written so far is durable."""
        await self._log.flush()

    async def flush_shown(self) -> None:
        """Return when all that the tick in flight shows is durable.

        Its beginning need not be: a tick that a crash cuts off leaves nothing behind, known or not.
        """
        await self._log.flush(self._shown)

    def _fold(self, fact: AnyFact) -> None:
        if not isinstance(fact, TickAnswered):  # a live answer is judged for its row, before it is written
            self.audit.observe(self.memory, fact)
        self.memory.apply(fact)
        self.policy.apply(fact)
        match fact:
            case FrameSeen():
                self.waiting[fact.frame_id] = WaitingFrame(
                    fact.frame_id,
                    fact.uuid,
                    fact.media_time_ms,
                    fact.lossless,
                    self._now(),
                    fact.operation_id,
                )
            case FrameDropped(reason=reason) if reason != "duplicate":  # a repeat's first frame stays
                self.waiting.pop(fact.frame_id, None)
            case TickBegun():
                self.last_tick = fact.tick
                self._riding = fact.frame_ids
            case TickAnswered():
                for frame_id in self._riding:
                    self.waiting.pop(frame_id, None)
            case _:
                pass
        self._on_fact(fact)
