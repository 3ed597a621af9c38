"""A place and an engine session on it, or neither."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bridges.duplex_client.link import LinkError
from orchestrator.backends.native.seat import Seat, Seats, elsewhere

T = TypeVar("T")
TRIES = 3
"""Engines asked for one session."""


async def open_seated(
    seats: Seats,
    session_id: str,
    open_on: Callable[[Seat], Awaitable[T]],
    *,
    rollover: bool = False,
) -> tuple[Seat, T]:
    """Take a place, open a session on it with ``open_on``, and go to another engine where that fails.

    Whatever ends it, the place is given back: an opening that was cancelled counts as one that nobody
    confirmed. Raises ``LinkError`` of the last engine, or what ``Seats.take`` raises.
    """
    for left in range(TRIES - 1, -1, -1):
        seat = await seats.take(session_id, rollover=rollover)
        try:
            opened = await open_on(seat)
        except LinkError as error:
            seat.failed(error.code)
            if not left or not elsewhere(error.code):
                raise
        except BaseException:
            seat.lost()
            raise
        else:
            seat.opened()
            return seat, opened
    raise AssertionError("unreachable")
