"""``Owning``: this process among several that share a store: its heartbeat, its leases, the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memory.store.errors import SessionGone, StoreError
from memory.store.leases import Leases
from memory.store.store import Store
from orchestrator.api.readings import Reading, Readings
from orchestrator.backends.store_faults import told_of
from orchestrator.keeping import kept_session
from orchestrator.lease_table import LeaseTable
from orchestrator.runtime.calls import bounded
from orchestrator.runtime.registry import Registry
from orchestrator.session.backend import Clock, SessionConfig
from orchestrator.wire.errors import Elsewhere

T = TypeVar("T")
_log = logging.getLogger(__name__)

LOST = "lease_lost"
"""Why a session ends here that goes on in another process, or may do so."""
UNSURE_S = 15.0
"""How long after its life a process that can't reach the store keeps its sessions: as long as one that has
something to write waits for it. Others may reach it, and have taken them over."""


class Owning:
    """:param heartbeat_s: between heartbeats
    :param defaults: configuration of a session that is brought here; its own record counts for more
    :param beside: told how many sessions other processes have open, at the same engines
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        registry: Registry,
        clock: Clock,
        heartbeat_s: float,
        defaults: Callable[[], SessionConfig],
        beside: Callable[[int], None],
    ) -> None:
        self._store = store
        self._leases = leases
        self._registry = registry
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._defaults = defaults
        self._beside = beside
        self._life_s = leases.process.life_s
        self._table = LeaseTable(self._life_s, clock.now())
        self._ends: set[asyncio.Task[bool]] = set()
        self.lost = 0
        """Sessions that another process took over while this one thought them its own."""
        self.late = 0
        """Heartbeats that came when the life was over already."""

    def took(self, session_id: str) -> None:
        """A session was opened here."""
        fence = self._store.held.get(session_id)
        if fence is not None:
            self._table.took(session_id, fence, self._clock.now())

    def let_go(self, session_id: str) -> None:
        """A session has ended here."""
        self._table.let_go(session_id)

    async def run(self) -> None:
        """Live until cancelled."""
        while True:
            await self.beat()
            await self._clock.sleep(self._heartbeat_s)

    async def beat(self) -> None:
        """One heartbeat; sessions that were lost end here, and what they still say is in no log. Where none
        was taken for too long all end here, to go on wherever they are asked for first."""
        sent_at = self._clock.now()
        if not self._table.sure(sent_at):
            self.late += 1
        try:
            held = await self._leases.beat()
        except StoreError as fault:
            _log.warning("the heartbeat was not taken: %s", fault.message)
            if not self._table.sure(self._clock.now() - UNSURE_S):
                for session_id in self._table.doubted():
                    _log.warning("session %s may be another process's by now: it ends here", session_id)
                    self._store.forsake(session_id)
                    self._end(session_id, LOST)
            return
        self._beside(held.beside)
        for session_id in self._table.answered(sent_at, held.fences):
            self.lost += 1
            _log.warning("session %s goes on in another process", session_id)
            self._end(session_id, LOST)

    def _end(self, session_id: str, reason: str) -> None:
        task = asyncio.create_task(self._registry.end(session_id, reason))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def find(self, tenant: str, name: str) -> None:
        """Return if a session, by its id or alias, can be asked for here.

        :raises Elsewhere: another process that lives owns it
        """
        if self._registry.owned(tenant, name) is not None:
            return
        found = await self._kept(tenant, name)
        if found is None:
            return
        owner = await self._told(self._leases.owner(found))
        if owner is not None and owner.lives and owner.id != self._leases.process.id:
            raise Elsewhere(found, owner.address)

    async def bring(self, tenant: str, name: str) -> None:
        """As ``find``; a session that was cut off and nobody owns is taken up here.

        :raises VigilError: also what opening it raised
        """
        await self.find(tenant, name)
        await self._registry.bring(tenant, name, self._defaults())

    async def settled(self, session_id: str, address: str) -> None:
        """Return when the process at ``address``, which can't be reached, has lost the session, or after the
        longest time that this takes."""

        async def free() -> None:
            while True:
                try:
                    owner = await self._leases.owner(session_id)
                    if owner is None or not owner.lives or owner.address != address:
                        return
                    await self._clock.sleep(min(owner.left_ms / 1000, self._heartbeat_s) + 0.01)
                except StoreError:
                    await self._clock.sleep(self._heartbeat_s)

        await bounded(free(), self._clock.sleep(2 * self._life_s))

    @property
    def here(self) -> str:
        """The address of this process."""
        return self._leases.process.address

    def readings(self) -> Readings:
        return {
            "leases": Reading("sessions that this process owns", float(len(self._table))),
            "leases_lost_total": Reading(
                "sessions that another process took over while this one thought them its own",
                float(self.lost),
            ),
            "heartbeats_late_total": Reading(
                "heartbeats that came when the process's life was over already", float(self.late)
            ),
        }

    async def _kept(self, tenant: str, name: str) -> str | None:
        """Id of a session that is not over."""
        info = await self._told(kept_session(self._store, tenant, name))
        return None if info is None or info.alias is None else info.id

    async def _told(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except SessionGone:
            raise
        except StoreError as fault:
            raise told_of(fault) from fault
