"""``Registry``: every live session of this process, by server-made id and by a tenant's own alias."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from orchestrator.runtime.actor import Session
from orchestrator.runtime.calls import bounded
from orchestrator.runtime.clock import system_tokens
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.subscription import Lost
from orchestrator.session.attachment import Tokens
from orchestrator.session.backend import Clock, Ids, SessionConfig
from orchestrator.session.lease import LeaseLimits
from orchestrator.session.limits import SessionLimits
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted, VigilError

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a session is about to be; the composition root builds its parts from this.

    :param fresh: it may be a new one; else it must be one that an earlier process left
    """

    session_id: str
    tenant: str
    alias: str
    config: SessionConfig
    fresh: bool = True


class CannotGoOn(Exception):
    """There is no such session from an earlier process, or it can't go on; and no new one was wanted."""


class Former(Protocol):
    """Sessions that an earlier process left, and that go on when they are asked for."""

    async def name_of(self, tenant: str, name: str) -> str | None:
        """The tenant's own name of the one of that id or name."""

    async def let_go(self, tenant: str, name: str) -> bool:
        """The one of that id or name goes on no more. False: there is none."""


SESSION_PREFIX = "duplex-"
BuildParts = Callable[[SessionSpec], Awaitable[SessionParts]]
Key = tuple[str, str]


def _any_number(_tenant: str) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """Times in seconds.

    :param sessions_of: sessions that one tenant may have; ``None``: no limit of its own
    :param idle_ttl_s: without activity until a session expires; ``None``: never
    :param disconnect_grace_s: without its socket until a session expires
    :param retry_after_s: hint given with ``resource_exhausted``
    """

    max_sessions: int = 64
    sessions_of: Callable[[str], int | None] = _any_number
    idle_ttl_s: float | None = 300.0
    disconnect_grace_s: float = 30.0
    reaper_interval_s: float = 5.0
    retry_after_s: float = 5.0
    session: SessionLimits = field(default_factory=SessionLimits)
    runtime: RuntimeLimits = field(default_factory=RuntimeLimits)


class _Slot:
    """One place of ``max_sessions``: taken from before the open until the backend is really gone."""

    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self.opening: asyncio.Task[Session]
        self.session: Session | None = None
        self.free = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Being opened, or open."""
        return self.session is None or self.session.is_open


class Registry:
    """Resolve, reset, expire, drain. Every method is safe to cancel: the work itself goes on."""

    def __init__(
        self,
        build: BuildParts,
        clock: Clock,
        ids: Ids,
        limits: RegistryLimits,
        tokens: Tokens = system_tokens,
        former: Former | None = None,
    ) -> None:
        self._former = former
        self._build = build
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._tokens = tokens
        self._slots: dict[str, _Slot] = {}
        self._bound: dict[Key, _Slot] = {}
        self._leaving: dict[Key, _Slot] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reaper: asyncio.Task[None] | None = None
        self.refused = {"limit": 0, "quota": 0}
        """Sessions that found no room here, by what is used up: all places, or the tenant's."""
        self.lost = Lost()
        self._draining = False

    async def resolve(self, tenant: str, alias: str | None, config: SessionConfig) -> Session:
        """The session behind a tenant's alias, or with that id, opened if there is none. ``None`` mints a
        fresh one.

        Concurrent calls for one alias open once. ``config`` matters only to the call that opens. A call for a
        fresh one that is cancelled leaves nothing: no other call waits for it.
        Raises ``ResourceExhausted`` at ``max_sessions`` or at the tenant's own quota
        (``session_quota_exceeded``), ``EngineUnavailable`` while shutting down, or what the backend raised.
        """
        while True:
            # Who wants a new one too may have come upon an opening that was for a former one alone.
            with suppress(CannotGoOn):
                return await self._resolved(tenant, alias, config, fresh=True)

    async def _resolved(
        self, tenant: str, alias: str | None, config: SessionConfig, *, fresh: bool
    ) -> Session:
        session_id = self._ids(SESSION_PREFIX)
        key = (tenant, alias or session_id)
        slot = self._slot_of(*key)
        if slot is None and alias is not None:
            key = (tenant, await self._former_name(tenant, alias) or alias)
            slot = self._slot_of(*key)
        if slot is None or not slot.usable:
            slot = self._admit(SessionSpec(session_id, *key, config, fresh))
        try:
            return await asyncio.shield(slot.opening)
        except asyncio.CancelledError:
            if alias is None:
                slot.opening.cancel()
                self._spawn(self._end(slot, "open_abandoned"))
            raise

    async def bring(self, tenant: str, name: str, config: SessionConfig) -> None:
        """The session of that id or alias is open here, if an earlier process left one that can go on, and
        nobody has it. It never opens a new one.

        ``config`` and errors as for ``resolve``.
        """
        if self._former is None or self.owned(tenant, name) is not None:
            return
        alias = await self._former.name_of(tenant, name)
        if alias is not None:
            with suppress(CannotGoOn):
                await self._resolved(tenant, alias, config, fresh=False)

    async def reset(self, tenant: str, alias: str) -> bool:
        """End the alias's session; the next ``resolve`` opens a fresh one. False: there was none.

        The alias is free at once: nothing that waits on the old session can reach the new one.
        """
        slot = self._slot_of(tenant, alias)
        if slot is not None:
            return await self.end(slot.spec.session_id, "reset")
        if self._former is None or alias in self._slots:
            return False
        return await self._former.let_go(tenant, alias)

    def get(self, session_id: str) -> Session | None:
        slot = self._slots.get(session_id)
        return slot.session if slot is not None else None

    def owned(self, tenant: str, name: str) -> Session | None:
        """A tenant's open session by its id or by the tenant's alias; opens nothing."""
        slot = self._slot_of(tenant, name)
        return slot.session if slot is not None and slot.usable else None

    async def _former_name(self, tenant: str, name: str) -> str | None:
        """By what name a session goes on that an earlier process left, if ``name`` is its id."""
        if self._former is None or not name.startswith(SESSION_PREFIX) or name in self._slots:
            return None
        return await self._former.name_of(tenant, name)

    def _slot_of(self, tenant: str, name: str) -> _Slot | None:
        """By id or by alias: a tenant's session has one life, whatever it is called."""
        slot = self._slots.get(name)
        known = slot is not None and slot.spec.tenant == tenant and slot.usable
        return slot if known else self._bound.get((tenant, name))

    async def end(self, session_id: str, reason: str) -> bool:
        """End a session by its id; its alias is free at once. False: it is not here."""
        slot = self._slots.get(session_id)
        if slot is None:
            return False
        self._unbind(slot)
        await asyncio.shield(self._spawn(self._end(slot, reason)))
        return True

    def sessions(self) -> tuple[Session, ...]:
        return tuple(slot.session for slot in self._slots.values() if slot.session is not None)

    async def drain(self, deadline_s: float) -> None:
        """Admit nobody more, let work in flight finish until the deadline, then close with ``shutdown``;
        whoever waits for a session that is not open by then is told ``shutting_down``.

        Returns when every session has been closed and its log flushed; closing has its own deadlines.
        """
        self._draining = True
        if self._reaper is not None:
            self._reaper.cancel()
        slots = tuple(self._slots.values())
        await bounded(self._all_quiet(slots), self._clock.sleep(deadline_s))
        for slot in slots:
            if slot.session is None:
                slot.opening.cancel()
        await asyncio.gather(*(self._spawn(self._end(slot, "shutdown")) for slot in slots))

    def statistics(self) -> dict[str, int | bool]:
        open_now = sum(slot.session is not None and slot.session.is_open for slot in self._slots.values())
        opening = sum(slot.session is None for slot in self._slots.values())
        return {
            "slots": len(self._slots),
            "max_sessions": self._limits.max_sessions,
            "opening": opening,
            "open": open_now,
            "closing": len(self._slots) - opening - open_now,
            "draining": self._draining,
        }

    # --- admission --------------------------------------------------------------------------------------

    def _admit(self, spec: SessionSpec) -> _Slot:
        if self._draining:
            raise self._shutting_down()
        key = (spec.tenant, spec.alias)
        if (former := self._bound.get(key)) is not None:
            self._unbind(former)
        # A session that is leaving under the same alias hands its place on.
        leaving = self._leaving.get(key)
        most, quota = self._limits.max_sessions, self._limits.sessions_of(spec.tenant)
        own = sum(slot.spec.tenant == spec.tenant for slot in self._slots.values())
        full = len(self._slots) >= most or (quota is not None and own >= quota)
        handed_on = leaving is not None and full
        if len(self._slots) - handed_on >= most:
            self.refused["limit"] += 1
            raise ResourceExhausted(
                f"all {most} sessions are taken; close one or try again later",
                retry_after_s=self._limits.retry_after_s,
            )
        if quota is not None and own - handed_on >= quota:
            self.refused["quota"] += 1
            raise ResourceExhausted(
                f"all {quota} sessions of this key are open; close one or try again later",
                code="session_quota_exceeded",
                retry_after_s=self._limits.retry_after_s,
            )
        slot = _Slot(spec)
        self._slots[spec.session_id] = self._bound[key] = slot
        slot.opening = self._spawn(self._open(slot, leaving if handed_on else None))
        if self._reaper is None:
            self._reaper = self._spawn(self._reap())
        return slot

    async def _open(self, slot: _Slot, leaving: _Slot | None) -> Session:
        try:
            if leaving is not None:
                await self._place_of(leaving)
            parts = await self._build(slot.spec)
            if parts.session_id is not None:
                self._rename(slot, parts.session_id)
            session = await Session.open(
                slot.spec.session_id,
                slot.spec.alias,
                slot.spec.config,
                parts,
                self._clock,
                ids=self._ids,
                tokens=self._tokens,
                session_limits=self._limits.session,
                lease=LeaseLimits(self._limits.idle_ttl_s, self._limits.disconnect_grace_s),
                limits=self._limits.runtime,
                lost=self.lost,
            )
        except asyncio.CancelledError:
            self._forget(slot)
            raise self._shutting_down() from None  # or nobody waits to be told
        except BaseException:
            self._forget(slot)
            raise
        slot.session = session
        self._spawn(self._watch(slot, session))
        return session

    def _rename(self, slot: _Slot, session_id: str) -> None:
        """The session goes on under the id that it had in an earlier process."""
        del self._slots[slot.spec.session_id]
        slot.spec = replace(slot.spec, session_id=session_id)
        self._slots[session_id] = slot

    def _shutting_down(self) -> EngineUnavailable:
        return EngineUnavailable(
            "the server is shutting down; try another one",
            code="shutting_down",
            retry_after_s=self._limits.retry_after_s,
        )

    async def _place_of(self, leaving: _Slot) -> None:
        limit = 2 * self._limits.runtime.deadlines.close_s
        if not await bounded(_event(leaving.free), self._clock.sleep(limit)):
            raise ResourceExhausted(
                "the former session of this alias has not been cleaned up yet; try again later",
                retry_after_s=self._limits.retry_after_s,
            )

    async def _watch(self, slot: _Slot, session: Session) -> None:
        """Keep the slot taken until the backend is really gone; retry a clean-up that failed."""
        await session.closed.wait()
        self._unbind(slot)
        while not await session.release():
            await self._clock.sleep(self._limits.reaper_interval_s)
        self._forget(slot)

    # --- ends -------------------------------------------------------------------------------------------

    async def _reap(self) -> None:
        while True:
            await self._clock.sleep(self._limits.reaper_interval_s)
            for slot in tuple(self._slots.values()):
                session = slot.session
                if session is not None and session.is_open:
                    session.tick()
                    if not session.is_open:
                        self._unbind(slot)

    async def _end(self, slot: _Slot, reason: str) -> None:
        try:
            session = await asyncio.shield(slot.opening)
        except Exception:
            return  # it never opened; whoever opened it was told why
        await session.close(reason)

    async def _all_quiet(self, slots: tuple[_Slot, ...]) -> None:
        for slot in slots:
            await asyncio.wait({slot.opening})
            if slot.session is not None:
                await slot.session.quiet()

    def _unbind(self, slot: _Slot) -> None:
        key = (slot.spec.tenant, slot.spec.alias)
        if self._bound.get(key) is slot:
            del self._bound[key]
            self._leaving[key] = slot

    def _forget(self, slot: _Slot) -> None:
        self._unbind(slot)
        key = (slot.spec.tenant, slot.spec.alias)
        if self._leaving.get(key) is slot:
            del self._leaving[key]
        self._slots.pop(slot.spec.session_id, None)
        slot.free.set()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # Openers are told their typed errors by ``resolve``; anything else here is a fault.
        if error is not None and not isinstance(error, VigilError):
            _log.error("session work failed", exc_info=error)


async def _event(event: asyncio.Event) -> None:
    await event.wait()
