"""Questions handed to a background solver: started, merged, capped, answered, cancelled with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

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
class Begun:
    """A question was taken: the fact for the log is written before the solver runs."""

    delegation_id: str
    question: str


@dataclass(frozen=True, slots=True)
class Ended:
    delegation_id: str
    question: str
    text: str
    ok: bool


@dataclass(frozen=True, slots=True)
class _Flight:
    delegation_id: str
    question: str
    task: asyncio.Task[None]


class Delegations:
    """At most ``cap`` questions in flight; the same question in flight is not asked twice.

    :param record: called with ``Begun`` and ``Ended`` at the moment each happens
    :param tell: puts an output into the session's stream
    """

    def __init__(
        self,
        solver: Solver | None,
        cap: int,
        timeout_s: float,
        clock: Clock,
        ids: Ids,
        record: Callable[[Begun | Ended], None],
        tell: Callable[[Delegation], Awaitable[None]],
    ) -> None:
        self._solver = solver
        self._cap = cap
        self._timeout_s = timeout_s
        self._clock = clock
        self._ids = ids
        self._record = record
        self._tell = tell
        self._flights: dict[str, _Flight] = {}  # by folded question

    async def ask(
        self, fence: Fence, question: str, note: str, frames: Sequence[SolverFrame], qa: str
    ) -> str:
        """Take a question; returns its status: ``started``, ``merged`` or ``dropped``."""
        key = folded(question)
        if (known := self._flights.get(key)) is not None:
            await self._tell(Delegation(fence, known.delegation_id, "merged", question))
            return "merged"
        delegation_id = self._ids("dlg")
        solver = self._solver
        if solver is None or len(self._flights) >= self._cap:
            error = "no_solver" if solver is None else "too_many_delegations"
            await self._tell(Delegation(fence, delegation_id, "dropped", question, error=error))
            return "dropped"
        self._record(Begun(delegation_id, question))
        work = self._run(solver, fence, delegation_id, question, note, frames, qa)
        task = asyncio.create_task(work, name=f"delegation {delegation_id}")
        self._flights[key] = _Flight(delegation_id, question, task)
        await self._tell(Delegation(fence, delegation_id, "started", question))
        return "started"

    async def _run(
        self,
        solver: Solver,
        fence: Fence,
        delegation_id: str,
        question: str,
        note: str,
        frames: Sequence[SolverFrame],
        qa: str,
    ) -> None:
        text, error = "", None
        work = asyncio.ensure_future(solver.solve(question, note, frames, qa))
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
        self._record(Ended(delegation_id, question, text if error is None else error, error is None))
        if error is None:
            await self._tell(Delegation(fence, delegation_id, "completed", question, text=text))
        else:
            await self._tell(Delegation(fence, delegation_id, "failed", question, error=error))

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
