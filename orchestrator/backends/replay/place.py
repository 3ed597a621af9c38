"""``Place``: which engine a session is on, and when it goes to another one. Implemented by the fleet."""

from __future__ import annotations

import asyncio
from typing import Protocol

from orchestrator.backends.live_tick import LiveTick


class Place(Protocol):
    """What a session tells of itself and asks about its engine.

    :param name: of the engine that answers its ticks
    :param leaves_soon: its engine wants to be rid of it: the next window had better come early
    :param suspect_lane: shared by all sessions of an engine: frames that may have killed it are shown to it
        one at a time
    """

    @property
    def name(self) -> str | None: ...
    @property
    def leaves_soon(self) -> bool: ...
    @property
    def suspect_lane(self) -> asyncio.Lock: ...

    def turn_after(self, moment: float, period_s: float) -> float | None:
        """The first moment, not before this one, at which a tick should begin whose time Vigil chooses;
        ``None``: one is as good as another."""

    def handover_begun(self) -> None:
        """The next window's head is frozen; it is about to be warmed."""

    def switched(self) -> None:
        """The next window is the live one."""

    async def lost(self) -> bool:
        """The engine gives no answers. True: another one takes the session, and it is its turn there."""

    def answered(self, tick: LiveTick) -> None:
        """A live tick was answered."""

    def refused(self, waited_s: float, period_s: float) -> None:
        """A live tick found no turn at the engine in time."""

    def leave(self) -> None:
        """The session is over."""


class Settled:
    """``Place`` of a session with one engine and no other."""

    name = None
    leaves_soon = False

    def __init__(self, suspect_lane: asyncio.Lock | None = None) -> None:
        self.suspect_lane = suspect_lane or asyncio.Lock()

    def turn_after(self, moment: float, period_s: float) -> float | None:
        return None

    def handover_begun(self) -> None:
        pass

    def switched(self) -> None:
        pass

    async def lost(self) -> bool:
        return False

    def answered(self, tick: LiveTick) -> None:
        pass

    def refused(self, waited_s: float, period_s: float) -> None:
        pass

    def leave(self) -> None:
        pass
