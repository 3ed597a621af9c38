"""Who answers what a model hands over. Both kinds of backend use it."""

from __future__ import annotations

from typing import Protocol

from bridges.solver import SolverAsk


class Solver(Protocol):
    """Answers one question with text, or raises.

    The code of a ``SolverError`` is told to the model and the client; any other exception is
    ``solver_failed`` to them. What it says goes to the log alone: it may hold addresses and keys.
    """

    async def solve(self, ask: SolverAsk) -> str: ...
