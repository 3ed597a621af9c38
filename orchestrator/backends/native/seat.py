"""Seats: where a pairing gets its place on an engine, and how it gives it back.

A place is taken from before an engine session opens until it is really gone: the engine said so, a new
instance of it answers, or it has been out of reach for longer than it keeps a lost session.
"""

from __future__ import annotations

from typing import Protocol

from bridges.duplex_client.link import LinkOptions


class Seat(Protocol):
    """One place on one engine. Exactly one of ``freed`` and ``lost`` ends it; the first call counts."""

    @property
    def engine(self) -> str:
        """The engine's name, for logs and metrics."""

    @property
    def options(self) -> LinkOptions: ...

    def freed(self) -> None:
        """The engine session is gone, or was never opened: the place is free at once."""

    def lost(self) -> None:
        """Nobody confirmed the end: the place stays taken until the engine must have let go of it."""

    def paced(self, unit_ms: int, took_ms: float) -> None:
        """A unit of ``unit_ms`` was answered after ``took_ms``: the engine's real-time factor."""


class Seats(Protocol):
    async def take(self, session_id: str, *, rollover: bool = False) -> Seat:
        """The best engine's next place, or ``ResourceExhausted`` with code ``resource_exhausted``.

        ``rollover``: for a fresh session of one that is admitted already; it may use the place that is kept
        for that, on any engine.
        """
