"""Questions handed to a background solver: started, merged, capped, answered, cancelled with the session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from memory.facts import DelegationBegun, DelegationDone, FrameSeen
from memory.store.base import FrameStore
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.repeats import folded
from orchestrator.session.backend import Clock, Delegation, Ids
from orchestrator.session.fence import Fence


@dataclass(frozen=True, slots=True)
class SolverFrame:
    """A recent frame: when it was taken, and its encoded bytes."""

    media_time_ms: int
    data: bytes


class Solver(Protocol):
    """Answers one question with text. Any exception is told to the model and the client as a failure."""

    async def solve(self, question: str, note: str, frames: Sequence[SolverFrame], qa: str) -> str: ...


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

    def saw(self, frame: FrameSeen) -> None:
        self._recent.append(frame)

    async def ask(self, fence: Fence, question: str, note: str) -> None:
        """Take a question: it is started, merged with one in flight, or dropped; the client is told."""
        key = folded(question)
        if (known := self._flights.get(key)) is not None:
            await self._tell(Delegation(fence, known.delegation_id, "merged", question))
            return
        delegation_id = self._ids("dlg")
        solver = self._solver
        if solver is None or len(self._flights) >= self._cap:
            error = "no_solver" if solver is None else "too_many_delegations"
            await self._tell(Delegation(fence, delegation_id, "dropped", question, error=error))
            return
        self._journal.write(
            DelegationBegun(
                delegation_id=delegation_id,
                question=question,
                media_time_ms=self._journal.memory.now_ms,
                tick=self._journal.last_tick,
            )
        )
        task = asyncio.create_task(
            self._run(solver, fence, delegation_id, question, note), name=f"delegation {delegation_id}"
        )
        self._flights[key] = _Flight(delegation_id, question, task)
        await self._tell(Delegation(fence, delegation_id, "started", question))

    async def _run(
        self,
        solver: Solver,
        fence: Fence,
        delegation_id: str,
        question: str,
        note: str,
    ) -> None:
        text, error = "", None
        qa = "\n".join(self._journal.memory.qa)
        work = asyncio.ensure_future(solver.solve(question, note, self._solver_frames(), qa))
        alarm = asyncio.ensure_future(self._clock.sleep(self._timeout_s))
        try:
            await asyncio.wait({work, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                text = work.result().strip()
                error = None if text else "empty_answer"
            else:
                error = "timeout"
        except Exception as problem:  # a solver is foreign code: whatever it raises ends its question alone
            error = f"{type(problem).__name__}: {problem}"[:200]
        finally:
            alarm.cancel()
            work.cancel()
            await asyncio.gather(work, alarm, return_exceptions=True)
        self._flights.pop(folded(question), None)
        self._journal.write(
            DelegationDone(
                delegation_id=delegation_id,
                question=question,
                text=text if error is None else error,
                ok=error is None,
                media_time_ms=self._journal.memory.now_ms,
            )
        )
        self._news()
        if error is None:
            await self._tell(Delegation(fence, delegation_id, "completed", question, text=text))
        else:
            await self._tell(Delegation(fence, delegation_id, "failed", question, error=error))

    def _solver_frames(self) -> list[SolverFrame]:
        frames = []
        for seen in self._recent:
            try:
                frames.append(SolverFrame(seen.media_time_ms, self._frames.get(seen.uuid)))
            except KeyError:  # deleted or expired meanwhile
                continue
        return frames

    async def close(self) -> list[tuple[str, str]]:
        """Cancel what is in flight and wait for it; returns (id, question) of what was cancelled."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.task.cancel()
        await asyncio.gather(*(flight.task for flight in flights), return_exceptions=True)
        self._flights.clear()
        return [(flight.delegation_id, flight.question) for flight in flights]

    def statistics(self) -> dict[str, int]:
        return {"in_flight": len(self._flights), "cap": self._cap}
