"""Questions handed to a background solver: started, merged, capped, answered, cancelled with the session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bridges.solver import SolverAsk, SolverFrame
from memory.facts import AnyFact, DelegationBegun, DelegationDone, FrameSeen
from memory.render import frame_caption, solver_prompt
from memory.store.base import FrameStore
from memory.store.errors import StoreError
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.repeats import folded
from orchestrator.backends.solvers import Solver, solved
from orchestrator.session.backend import Clock, Delegation, Ids
from orchestrator.session.fence import Fence
from prompts.pack import Pack


@dataclass(frozen=True, slots=True)
class _Flight:
    delegation_id: str
    question: str
    task: asyncio.Task[None]


class Delegations:
    """At most ``cap`` questions in flight; the same question in flight is not asked twice.

    :param timeout_s: seconds a solver may take for one question
    :param recent: newest frames that a solver sees, whatever window or chunk they are in
    :param tell: puts an output into the session's stream
    :param news: called when a result was written, so that a tick shows it at once
    """

    def __init__(
        self,
        solver: Solver | None,
        pack: Pack,
        journal: Journal,
        frames: FrameStore,
        clock: Clock,
        ids: Ids,
        tell: Callable[[Delegation], Awaitable[None]],
        news: Callable[[], None],
        *,
        cap: int,
        timeout_s: float,
        recent: int,
    ) -> None:
        self._solver = solver
        self._pack = pack
        self._journal = journal
        self._frames = frames
        self._clock = clock
        self._ids = ids
        self._tell = tell
        self._news = news
        self._cap = cap
        self._timeout_s = timeout_s
        self._recent: deque[FrameSeen] = deque(maxlen=recent)
        self._flights: dict[str, _Flight] = {}  # by folded question
        self._refusal: str | None = None  # last one told to the model, until a question was taken

    def saw(self, frame: FrameSeen) -> None:
        self._recent.append(frame)

    async def ask(self, fence: Fence, question: str, note: str) -> Delegation:
        """Take a question: it is started, merged with one in flight, or refused. Returns what was told."""
        told = self._take(fence, question, note)
        await self._tell(told)
        return told

    def _take(self, fence: Fence, question: str, note: str) -> Delegation:
        key = folded(question)
        if (known := self._flights.get(key)) is not None:
            return Delegation(fence, known.delegation_id, "merged", question)
        delegation_id = self._ids("dlg")
        solver = self._solver
        if solver is None or len(self._flights) >= self._cap:
            error = "no_solver" if solver is None else "too_many_delegations"
            if error != self._refusal:  # the model is told once, not at every tick
                self._refusal = error
                self._begun(delegation_id, question)
                self._done(delegation_id, question, "", error)
            return Delegation(fence, delegation_id, "failed", question, error=error)
        self._refusal = None
        self._begun(delegation_id, question)
        work = self._run(solver, fence, delegation_id, question, note)
        task = asyncio.create_task(work, name=f"delegation {delegation_id}")
        self._flights[key] = _Flight(delegation_id, question, task)
        return Delegation(fence, delegation_id, "started", question)

    async def _run(self, solver: Solver, fence: Fence, delegation_id: str, question: str, note: str) -> None:
        ask = self._question(question, note)
        text, error = await solved(solver, ask, self._clock, self._timeout_s, str.strip)
        self._flights.pop(folded(question), None)
        self._done(delegation_id, question, text, error)
        self._news()
        if error is None:
            await self._tell(Delegation(fence, delegation_id, "completed", question, text=text))
        else:
            await self._tell(Delegation(fence, delegation_id, "failed", question, error=error))

    def _begun(self, delegation_id: str, question: str) -> None:
        self._journal.write(
            DelegationBegun(
                delegation_id=delegation_id,
                question=question,
                media_time_ms=self._journal.memory.now_ms,
                tick=self._journal.last_tick,
            )
        )

    def _done(self, delegation_id: str, question: str, text: str, error: str | None) -> None:
        self._journal.write(
            DelegationDone(
                delegation_id=delegation_id,
                question=question,
                text=text if error is None else error,
                ok=error is None,
                media_time_ms=self._journal.memory.now_ms,
            )
        )

    def _question(self, question: str, note: str) -> SolverAsk:
        memory = self._journal.memory
        prompt = solver_prompt(
            self._pack,
            memory.language,
            question=question,
            note=note,
            qa=memory.qa,
            target=memory.budget.delegation_answer_tokens,
        )
        frames = []
        for seen in self._recent:
            try:
                data = self._frames.get(seen.uuid)
            except (KeyError, StoreError):  # deleted or expired meanwhile, or not readable now
                continue
            frames.append(SolverFrame(frame_caption(self._pack, memory.language, seen.media_time_ms), data))
        return SolverAsk(prompt.system, prompt.text, tuple(frames))

    async def restored(self, fence: Fence, history: Sequence[AnyFact]) -> None:
        """Questions that were in flight when the log ended have failed."""
        open_: dict[str, str] = {}
        for fact in history:
            match fact:
                case DelegationBegun():
                    open_[fact.delegation_id] = fact.question
                case DelegationDone():
                    open_.pop(fact.delegation_id, None)
                case _:
                    pass
        for delegation_id, question in open_.items():
            self._done(delegation_id, question, "", "restarted")
            await self._tell(Delegation(fence, delegation_id, "failed", question, error="restarted"))

    async def cancel(self, fence: Fence) -> list[Delegation]:
        """End what is in flight and wait for it; returns what is to be told."""
        flights, self._flights = self._flights, {}
        for flight in flights.values():
            flight.task.cancel()
        await asyncio.gather(*(flight.task for flight in flights.values()), return_exceptions=True)
        return [Delegation(fence, f.delegation_id, "cancelled", f.question) for f in flights.values()]

    def write_off(self, cancelled: Sequence[Delegation]) -> None:
        """Log that these have no answer: a session that is opened again shows it to its model."""
        for told in cancelled:
            self._done(told.delegation_id, told.question, "", told.status)

    def statistics(self) -> dict[str, int]:
        return {"in_flight": len(self._flights), "cap": self._cap}
