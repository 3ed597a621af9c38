"""One engine session and its place: opened, checked against the profile, and really gone at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from bridges.duplex_client.link import EngineLink, LinkError, Links, OpenedSession
from orchestrator.backends.native.advertised import fit
from orchestrator.backends.native.faults import told_of
from orchestrator.backends.native.seat import Seat, Seats
from orchestrator.backends.native.seating import open_seated
from prompts.native import NativeProfile

ABANDONED = "open_abandoned"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    seat: Seat
    link: EngineLink
    opened: OpenedSession
    generation: int


class Pairings:
    """Opens and closes the engine sessions of one session. Nothing of a failed or cancelled open stays."""

    def __init__(self, session_id: str, profile: NativeProfile, seats: Seats, links: Links) -> None:
        self._session_id = session_id
        self._profile = profile
        self._seats = seats
        self._links = links
        self._held: list[Pairing] = []
        """Open, and given back by nobody yet."""
        self._leaving: set[asyncio.Task[None]] = set()

    async def open(
        self,
        body: Mapping[str, Any],
        generation: int,
        *,
        item: Mapping[str, Any] | None = None,
        rollover: bool = False,
    ) -> Pairing:
        """Take a place and open an engine session. Raises ``resource_exhausted``, what the engine refused
        with, or ``runtime_contract_invalid``.

        :param item: put into its conversation before anything else
        """

        async def open_on(seat: Seat) -> tuple[EngineLink, OpenedSession]:
            link = self._links(seat.options)
            opened: OpenedSession | None = None
            try:
                opened = await link.open({**body, "model": seat.options.model})
                fit(self._profile, opened)
                if item is not None:
                    await link.add_item(item)
            except BaseException as error:
                refused = isinstance(error, LinkError)
                if not refused or (opened is not None and not await _closed(link, ABANDONED)):
                    # The link would keep what it opened alive; nobody waits here for its end.
                    seat.lost(lambda: _closed(link, ABANDONED))
                raise
            return link, opened

        try:
            seat, (link, opened) = await open_seated(
                self._seats, self._session_id, open_on, rollover=rollover
            )
        except LinkError as error:
            raise told_of(error) from error
        pairing = Pairing(seat, link, opened, generation)
        self._held.append(pairing)
        return pairing

    async def close(self, pairing: Pairing, reason: str) -> bool:
        """True when the engine said that the session is gone; the place is free then."""
        confirmed = await _closed(pairing.link, reason)
        if confirmed:
            self.ended(pairing)
        return confirmed

    def ended(self, pairing: Pairing) -> None:
        """The engine said that the session is gone."""
        self._let_go(pairing)
        pairing.seat.freed()

    def lose(self, pairing: Pairing, reason: str) -> None:
        """Nobody confirmed the end, and nobody waits for it any more."""
        self._let_go(pairing)
        _log.warning("engine %s did not confirm the end of a session", pairing.seat.engine)
        pairing.seat.lost(lambda: _closed(pairing.link, reason))

    def leave(self, pairing: Pairing, reason: str, done: Callable[[], None] = lambda: None) -> None:
        """Close in the background; the place is given back however that ends."""
        self._let_go(pairing)
        self._spawn(self._leave(pairing, reason, done))

    def leave_all(self, reason: str) -> None:
        """Leave what is still held, wherever the change from one to another was broken off."""
        for pairing in tuple(self._held):
            self.leave(pairing, reason)

    async def gone(self) -> None:
        """Return when every close in the background has ended."""
        while self._leaving:
            await asyncio.wait(self._leaving)

    async def _leave(self, pairing: Pairing, reason: str, done: Callable[[], None]) -> None:
        try:
            if not await self.close(pairing, reason):
                self.lose(pairing, reason)
        finally:
            done()

    def _let_go(self, pairing: Pairing) -> None:
        if pairing in self._held:
            self._held.remove(pairing)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


async def _closed(link: EngineLink, reason: str) -> bool:
    try:
        return await link.close(reason)
    except LinkError:
        return False
