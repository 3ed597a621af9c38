"""The background solvers that the settings name."""

from __future__ import annotations

from bridges.solver import ChatSolver, SolverChain
from orchestrator.setting_groups import Solver
from orchestrator.settings import Settings


def solver_chain(settings: Settings) -> SolverChain | None:
    """One chain for all sessions, so that the bounds of each solver hold over them; ``None``: delegation is
    off."""
    return SolverChain([_solver(each) for each in settings.solvers]) if settings.solvers else None


def _solver(named: Solver) -> ChatSolver:
    return ChatSolver(
        named.name,
        named.url,
        named.model,
        named.params,
        api_key=named.api_key.get_secret_value() if named.api_key else None,
        images="images" in named.capabilities,
        deadline_s=named.deadline_s,
        max_in_flight=named.max_in_flight,
    )
