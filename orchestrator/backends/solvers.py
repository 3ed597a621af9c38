"""Who answers what a model hands over. Both kinds of backend use it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from bridges.solver import SolverAsk, SolverError
from orchestrator.session.backend import Clock

_log = logging.getLogger(__name__)


class Solver(Protocol):
    """Answers one question with text, or raises.

    The code of a ``SolverError`` is told to the model and the client; any other exception is
    ``solver_failed`` to them. What it says goes to the log alone: it may hold addresses and keys.
    """

    async def solve(self, ask: SolverAsk) -> str: ...


async def solved(
    solver: Solver, ask: SolverAsk, clock: Clock, deadline_s: float, clean: Callable[[str], str]
) -> tuple[str, str | None]:
    """The answer as ``clean`` leaves it, or the code of why there is none. Safe to cancel."""
    work = asyncio.ensure_future(solver.solve(ask))
    alarm = asyncio.ensure_future(clock.sleep(deadline_s))
    try:
        await asyncio.wait({work, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return "", "solver_timeout"
        text = clean(work.result())
        return text, None if text else "solver_empty_answer"
    except SolverError as problem:
        return "", problem.code
    except Exception:  # a solver is foreign code: whatever it raises ends its question alone
        _log.exception("a solver failed")
        return "", "solver_failed"
    finally:
        alarm.cancel()
        work.cancel()
        await asyncio.gather(work, alarm, return_exceptions=True)
