"""Where a session's log and frames live: in the durable store, or only as long as the process."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memory.facts import AnyFact, parse_fact
from memory.render import RENDERER
from memory.store.base import FrameStore
from memory.store.session import DurableSession
from memory.store.store import Store
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import Clock, FactLog

RESUMABLE = "shutdown"
"""The reason of a close after which the same session goes on when the service is back."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one session is given to remember with.

    :param frame_key: keys its frames' ids towards the engine; ``salt``: the engine's ``cache_salt``
    :param history: facts of a session that goes on
    :param ended: to be awaited when its backend is closed
    :param released: to be awaited when nothing of it is written any more
    """

    log: FactLog
    frames: FrameStore
    frame_key: bytes
    salt: str
    history: Sequence[AnyFact]
    ended: Callable[[str], Awaitable[None]]
    released: Callable[[], Awaitable[None]]


class Keeper(Protocol):
    async def keep(self, spec: SessionSpec, pack_digest: str) -> Kept: ...

    async def salt(self, tenant: str) -> str:
        """The engine's ``cache_salt`` for a tenant's requests without a session."""

    async def sweep(self) -> None:
        """Remove what has outlived its retention; meant for every minute or so."""

    async def aclose(self) -> None: ...


class TransientKeeper:
    """Nothing survives the process."""

    def __init__(self, clock: Clock, max_frame_bytes: int = 512 * 2**20) -> None:
        self._clock = clock
        self._frames = TransientFrames(max_frame_bytes)
        self._key = secrets.token_bytes(32)

    async def keep(self, spec: SessionSpec, pack_digest: str) -> Kept:
        log = TransientLog(self._clock.wall_ms)
        return Kept(log, self._frames, self._key, self._key.hex(), (), _nothing, _nothing)

    async def salt(self, tenant: str) -> str:
        return self._key.hex()

    async def sweep(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class DurableKeeper:
    """The store in the data folder.

    A session that a crash or a shutdown cut off goes on under its alias, if pack and model are the same; one
    that was reset, expired or closed does not: its alias gets a fresh one.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._ours: set[str] = set()

    @classmethod
    async def open(cls, data: Path, clock: Clock) -> DurableKeeper:
        """:param data: an existing folder, as an absolute path"""
        store = await Store.open(f"sqlite:///{data}/vigil.db", data, now_ms=clock.wall_ms)
        return cls(store, clock)

    async def keep(self, spec: SessionSpec, pack_digest: str) -> Kept:
        keys = await self._store.keys(spec.tenant)
        session = await self._cut_off(spec, pack_digest)
        history: list[AnyFact] = []
        if session is None:
            session = await self._store.create(
                spec.session_id,
                tenant=spec.tenant,
                model=spec.config.model,
                pack_digest=pack_digest,
                renderer=RENDERER,
                alias=spec.alias,
            )
        else:
            parsed = [parse_fact(entry.kind, dict(entry.data)) for entry in await session.log.read()]
            history = [fact for fact in parsed if fact is not None]
        kept = session
        self._ours.add(kept.id)

        async def ended(reason: str) -> None:
            if reason != RESUMABLE:
                await kept.close()

        async def released() -> None:
            self._ours.discard(kept.id)
            await kept.release()

        salt = keys.cache_salt()
        return Kept(kept.log, kept.frames, keys.frame_key, salt, history, ended, released)

    async def salt(self, tenant: str) -> str:
        return (await self._store.keys(tenant)).cache_salt()

    async def sweep(self) -> None:
        await self._store.sweep(self._clock.wall_ms())

    async def aclose(self) -> None:
        await self._store.close()

    async def _cut_off(self, spec: SessionSpec, pack_digest: str) -> DurableSession | None:
        """The session that this alias had when an earlier process ended, if it can go on."""
        info = await self._store.find(spec.tenant, spec.alias)
        if info is None:
            return None
        session = await self._store.session(info.id)
        known = (info.model, info.pack_digest, info.renderer) == (spec.config.model, pack_digest, RENDERER)
        if known and info.last_seq > 0 and info.id not in self._ours:
            return session
        await session.close()
        if info.id not in self._ours:
            await session.release()
        return None


async def _nothing(*_: object) -> None:
    """Transient logs need no end."""
