"""What a replay was asked to do, and how it can end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.exits import Exit


class ReplayError(Exception):
    """A replay that can't start or go on.

    :param exit_code: what the process ends with
    :param code: stable machine-readable code, written to ``summary.json``
    :param message: what went wrong and what to change
    """

    def __init__(self, exit_code: Exit, code: str, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.message = message


class Pace(StrEnum):
    """``realtime``: frames come when their time has come; ``fast``: the next as soon as one is decided."""

    REALTIME = "realtime"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Query:
    """A standing query, asked just before the first frame at or after ``at_s`` seconds of media time.

    ``text``: ``None`` withdraws the one that stands.
    """

    at_s: float
    text: str | None


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of one replay; ``None`` means the settings' or the prompt pack's default.

    :param source: path or URL
    :param out: folder of the run's files
    :param queries: in the order in which they are asked
    :param engine: URL or name of a launch profile; ``server``: URL of a running ``vigil serve`` instead
    :param loop: how often the source is played, media time running on
    :param solver: URL of a chat endpoint that answers delegated questions; ``solver_model``: its model
    :param max_ticks: stop after this many decisions
    :param threshold: speak when P(response) reaches it, between 0 and 1
    """

    source: str
    out: Path
    queries: Sequence[Query] = ()
    pace: Pace = Pace.REALTIME
    engine: str | None = None
    server: str | None = None
    api_key: str | None = None
    model: str | None = None
    family: str | None = None
    persona: str | None = None
    language: str | None = None
    solver: str | None = None
    solver_model: str | None = None
    seed: int | None = None
    loop: int = 1
    max_ticks: int | None = None
    threshold: float | None = None

    def public(self) -> dict[str, Any]:
        """What ``summary.json`` says of them: no key, no path of this machine."""
        return {
            "queries": [{"at_s": q.at_s, "text": q.text} for q in self.queries],
            "pace": self.pace.value,
            "persona": self.persona,
            "language": self.language,
            "solver_model": self.solver_model,
            "seed": self.seed,
            "loop": self.loop,
            "max_ticks": self.max_ticks,
            "threshold": self.threshold,
        }
