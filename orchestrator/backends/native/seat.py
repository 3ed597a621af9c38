"""Seats: where a pairing gets its place on an engine, and how it gives it back.

A place is taken from before an engine session opens until it is really gone: the engine said so, a new
instance of it answers, or it has been out of reach for longer than it keeps a lost session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from bridges.duplex_client.link import LinkCode, LinkOptions

FULL = "resource_exhausted"
UNCONFIRMED: frozenset[str] = frozenset(
    {LinkCode.TIMEOUT, LinkCode.LINK_LOST, LinkCode.LINK_CLOSED, LinkCode.BAD_ENGINE_EVENT}
)
"""Openings after which the engine may hold a session that nobody knows."""
SICK: frozenset[str] = UNCONFIRMED | {
    LinkCode.CONNECT_FAILED, "internal_error", "engine_error", "runtime_contract_invalid",
    "server_vad_unavailable",
}  # fmt: skip
"""Openings that failed through the engine; any other refusal is an answer to what was asked."""


def elsewhere(code: str) -> bool:
    """Another engine may do what one refused with this code."""
    return code in SICK or code == FULL


class Seat(Protocol):
    """One place on one engine. Exactly one of ``failed``, ``freed`` and ``lost`` ends it; the first counts.

    A seat whose opening was cancelled half-way is ``lost``: the engine may have opened the session.
    """

    @property
    def engine(self) -> str:
        """The engine's name, for logs and metrics."""

    @property
    def options(self) -> LinkOptions: ...

    def opened(self) -> None:
        """The engine session is open."""

    def failed(self, code: str) -> None:
        """The engine session did not open. ``code``: of the ``LinkError``; it says whether the place is free
        at once (not where ``UNCONFIRMED``), and whether the engine is left alone for a while (``SICK``)."""

    def freed(self) -> None:
        """The engine session is gone, or its opening was never begun: the place is free at once."""

    def lost(self, close: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Nobody confirmed the end: the place stays taken until the engine must have let go of it.

        ``close``: tried again meanwhile; True: the engine said that the session is gone.
        """

    def paced(self, unit_ms: int, took_ms: float) -> None:
        """A unit of ``unit_ms`` was answered after ``took_ms``: the engine's real-time factor."""


class Seats(Protocol):
    async def take(self, session_id: str, *, rollover: bool = False) -> Seat:
        """The best engine's next place. Raises ``ResourceExhausted`` (``resource_exhausted``) where all are
        taken, and ``EngineUnavailable`` where no engine answers; both say when to try again.

        ``rollover``: for a fresh session of one that is admitted already; it may use the place that is kept
        for that, on any engine.
        """
