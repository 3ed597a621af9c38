"""Every session of a tenant, live or kept, as plain data: for the API, and for ``vigil session``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from memory.budget import LimitsTooSmall
from memory.describe import describe_memory, describe_plan
from memory.facts import MemoryOpened, SpokenOpened, TickFailed, parse_fact
from memory.fold import Memory
from memory.spoken import SpokenMemory
from memory.spoken_described import SPOKEN_RENDERER, describe_spoken
from memory.store.base import Entry
from memory.store.errors import SessionGone, StoreError
from memory.store.session import SessionInfo
from memory.store.store import Store
from memory.tally import Tally
from orchestrator.api.public_facts import public_config
from orchestrator.backends.store_faults import told_of
from orchestrator.keeping import kept_packs
from orchestrator.runtime.actor import Session
from orchestrator.runtime.registry import Registry
from orchestrator.tail import Bells, Tail
from orchestrator.wire.errors import InvalidRequest, NotFound

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Live:
    """What only a live session knows.

    :param health: see ``Built``
    """

    session: Session
    memory: Memory | SpokenMemory
    tally: Tally
    health: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Running:
    """The live side of a service.

    :param live: of a session by its id, if it is live here
    :param released: returns when nothing writes to that session any more
    :param forget: drop what is kept of a session outside the store
    """

    registry: Registry
    live: Callable[[str], Live | None]
    released: Callable[[str], Awaitable[None]]
    forget: Callable[[str], Awaitable[None]]


class Directory:
    """Sessions go by their id or by the tenant's own alias; those of others are unknown.

    All methods raise ``VigilError``.

    :param running: absent where no service runs: nothing is live then
    """

    def __init__(self, store: Store, bells: Bells, running: Running | None = None) -> None:
        self._store = store
        self._bells = bells
        self._running = running
        # A long log takes a while to fold; one at a time leaves the other core to the ticks.
        self._folding = asyncio.Lock()

    async def page(self, tenant: str, limit: int, after: str | None) -> dict[str, Any]:
        """Newest first. ``after``: id of the last session of the page before."""
        with _store_faults():
            if after is not None and (await self._by_id(tenant, after)) is None:
                raise InvalidRequest(f"there is no session {after} to go on after", param="after")
            found = await self._store.sessions(tenant, limit + 1, after)
        data = [self._summary(info) for info in found[:limit]]
        return {"object": "list", "data": data, "has_more": len(found) > limit}

    async def about(self, tenant: str, name: str) -> dict[str, Any]:
        """Its record, configuration, counts, and how well it does."""
        with _store_faults():
            info = await self._find(tenant, name)
            live = self._live(info.id)
            tally = live.tally if live else await self._counted(info.id)
        config = asdict(live.session.config) if live else tally.config
        return {
            **self._summary(info),
            "closed_because": tally.ended,
            "retention_ms": info.retention_ms,
            "config": public_config(config),
            **tally.public(),
            "health": dict(live.health) if live else None,
        }

    async def memory(self, tenant: str, name: str) -> dict[str, Any]:
        """The tiers of its memory; see ``memory.describe``."""
        return await self._described(tenant, name, _tiers)

    async def plan(self, tenant: str, name: str) -> dict[str, Any]:
        """What the model would see now; see ``memory.describe``."""
        return await self._described(tenant, name, _plan)

    async def export(self, tenant: str, name: str) -> tuple[str, AsyncIterator[bytes]]:
        """The session's id, and its log and frames as a tar (format: ``memory.store.export``)."""
        with _store_faults():
            info = await self._find(tenant, name)
        return info.id, self._exported(info.id)

    async def delete(self, tenant: str, name: str) -> str:
        """End the session if it is live, then remove its log and frames. Its alias is free."""
        with _store_faults():
            info = await self._find(tenant, name)
            with self._bells.deleting(info.id):
                if self._running is not None:
                    await self._running.registry.end(info.id, "deleted")
                    await self._running.released(info.id)
                    await self._running.forget(info.id)
                await self._store.delete(info.id)
        return info.id

    async def tail(self, tenant: str, name: str, after: int, *, follow: bool = True) -> Tail:
        """A reader of its facts from ``after`` on; without ``follow`` of those that are there."""
        with _store_faults():
            info = await self._find(tenant, name)
        return _ToldTail(self._store, self._bells, info.id, after, follow=follow)

    # --- parts ------------------------------------------------------------------------------------------

    async def _find(self, tenant: str, name: str) -> SessionInfo:
        known = self._running.registry.owned(tenant, name) if self._running else None
        info = await self._by_id(tenant, known.id if known else name)
        if info is None:
            info = await self._store.find(tenant, name)
        if info is None:
            raise NotFound(f"there is no session {name}", code="unknown_session")
        return info

    async def _by_id(self, tenant: str, session_id: str) -> SessionInfo | None:
        try:
            info = await self._store.info(session_id)
        except SessionGone:
            return None
        return info if info.tenant == tenant else None

    def _live(self, session_id: str) -> Live | None:
        return self._running.live(session_id) if self._running else None

    def _summary(self, info: SessionInfo) -> dict[str, Any]:
        live = self._live(info.id)
        kept = "closed" if info.closed_ms is not None else "kept"
        return {
            "id": info.id,
            "object": "session",
            "alias": info.alias,
            "model": info.model,
            "state": live.session.statistics()["state"] if live else kept,
            "live": live is not None,
            "created_ms": info.created_ms,
            "updated_ms": info.updated_ms,
            "closed_ms": info.closed_ms,
            "facts": info.last_seq,
        }

    async def _counted(self, session_id: str) -> Tally:
        tally = Tally()

        def count(page: Sequence[Entry]) -> None:
            for entry in page:
                tally.apply(entry.kind, entry.data)

        async with self._folding:
            async for page in self._store.entries(session_id):
                await asyncio.to_thread(count, page)
        return tally

    async def _described(
        self, tenant: str, name: str, describe: Callable[[Memory | SpokenMemory], dict[str, Any]]
    ) -> dict[str, Any]:
        with _store_faults():
            info = await self._find(tenant, name)
            live = self._live(info.id)
            memory = live.memory if live else await self._folded(info)
        return {
            "session_id": info.id,
            "alias": info.alias,
            "live": live is not None,
            **describe(memory),
        }

    async def _folded(self, info: SessionInfo) -> Memory | SpokenMemory:
        """The memory of a kept session, as it would go on."""
        if info.renderer == SPOKEN_RENDERER:
            return await self._spoken(info)
        memory = Memory(*(await kept_packs(self._store, info.id)).values())
        async with self._folding:
            async for page in self._store.entries(info.id):
                await asyncio.to_thread(_fold, memory, page)
        if not memory.is_open:
            raise NotFound(f"session {info.id} ended before it had a memory", code="no_memory")
        if memory.in_flight is not None:
            memory.apply(TickFailed(tick=memory.in_flight, media_time_ms=memory.now_ms, code="restarted"))
        while moves := memory.moves():
            for move in moves:
                memory.apply(move)
        return memory

    async def _spoken(self, info: SessionInfo) -> SpokenMemory:
        memory = SpokenMemory()
        begun = False
        async with self._folding:
            async for page in self._store.entries(info.id):
                for entry in page:
                    fact = parse_fact(entry.kind, dict(entry.data))
                    begun = begun or isinstance(fact, SpokenOpened)
                    if fact is not None and begun:
                        memory.apply(fact)
        if not begun:
            raise NotFound(f"session {info.id} ended before it had a memory", code="no_memory")
        return memory

    async def _exported(self, session_id: str) -> AsyncIterator[bytes]:
        with _store_faults():
            async for part in self._store.export(session_id):
                yield part


def _tiers(memory: Memory | SpokenMemory) -> dict[str, Any]:
    return describe_spoken(memory) if isinstance(memory, SpokenMemory) else describe_memory(memory)


def _plan(memory: Memory | SpokenMemory) -> dict[str, Any]:
    if isinstance(memory, SpokenMemory):
        raise NotFound("what the model sees is kept by its engine; look at /memory", code="no_plan")
    return describe_plan(memory)


def _fold(memory: Memory, page: Sequence[Entry]) -> None:
    for entry in page:
        fact = parse_fact(entry.kind, dict(entry.data))
        if fact is None or not (memory.is_open or isinstance(fact, MemoryOpened)):
            continue
        try:
            memory.apply(fact)
        except (KeyError, LimitsTooSmall) as unlike:
            raise NotFound(
                f"what this session was made with is not there any more: {unlike}", code="memory_unreadable"
            ) from unlike


class _ToldTail(Tail):
    """Its errors are those a client is told."""

    async def pages(self, idle_s: float) -> AsyncGenerator[Sequence[Entry], None]:
        with _store_faults():
            async with aclosing(super().pages(idle_s)) as pages:
                async for page in pages:
                    yield page


@contextmanager
def _store_faults() -> Iterator[None]:
    try:
        yield
    except SessionGone as gone:
        raise NotFound("the session was deleted meanwhile", code="unknown_session") from gone
    except StoreError as fault:
        _log.warning("the store does not answer: %s", fault.message)
        raise told_of(fault) from fault
