"""Where a session's log and frames live: in the durable store, or only as long as the process."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memory.facts import AnyFact, parse_fact
from memory.render import RENDERER
from memory.store.base import Entry, FrameStore
from memory.store.errors import SessionGone
from memory.store.session import DurableSession
from memory.store.store import Keeping, Store
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.folder_lock import FolderLock
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import Clock, FactLog
from orchestrator.session.record import SessionRecord

RESUMABLE = "shutdown"
"""The reason of a close after which the same session goes on when the service is back."""


class WatchedLog(FactLog, Protocol):
    """A log that tells of each entry as it is appended."""

    def subscribe(self, callback: Callable[[Entry], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """What one session is given to remember with.

    :param frame_key: keys its frames' ids towards the engine; ``salt``: the engine's ``cache_salt``
    :param session_id: the one it had before, if it goes on
    :param past: the log so far of a session that goes on
    :param ended: to be awaited when its backend is closed
    :param released: to be awaited when nothing of it is written any more
    """

    session_id: str
    log: WatchedLog
    frames: FrameStore
    frame_key: bytes
    salt: str
    past: Sequence[Entry]
    ended: Callable[[str], Awaitable[None]]
    released: Callable[[], Awaitable[None]]

    @property
    def history(self) -> list[AnyFact]:
        """What memory has to fold of the past."""
        parsed = [parse_fact(entry.kind, dict(entry.data)) for entry in self.past]
        return [fact for fact in parsed if fact is not None]

    @property
    def record(self) -> SessionRecord | None:
        """What the session itself goes on from; ``None`` for a new one."""
        if not self.past:
            return None
        record = SessionRecord()
        for entry in self.past:
            record.apply(entry.kind, entry.data)
        return record


class Keeper(Protocol):
    @property
    def store(self) -> Store | None:
        """Where sessions can be looked up, also when they are over."""

    async def keep(self, spec: SessionSpec, pack_digest: str) -> Kept: ...

    async def salt(self, tenant: str) -> str:
        """The engine's ``cache_salt`` for a tenant's requests without a session."""

    async def sweep(self) -> None:
        """Remove what has outlived its retention; meant for every minute or so."""

    async def aclose(self) -> None: ...


class TransientKeeper:
    """Nothing survives the process."""

    store: Store | None = None

    def __init__(self, clock: Clock, max_frame_bytes: int = 512 * 2**20) -> None:
        self._clock = clock
        self._frames = TransientFrames(max_frame_bytes)
        self._key = secrets.token_bytes(32)

    async def keep(self, spec: SessionSpec, pack_digest: str) -> Kept:
        log = TransientLog(self._clock.wall_ms)
        return Kept(spec.session_id, log, self._frames, self._key, self._key.hex(), (), _nothing, _nothing)

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

    def __init__(self, store: Store, clock: Clock, lock: FolderLock) -> None:
        self.store: Store = store
        self._lock = lock
        self._clock = clock
        self._ours: set[str] = set()

    @classmethod
    async def open(
        cls, data: Path, clock: Clock, url: str | None = None, keeping: Keeping | None = None
    ) -> DurableKeeper:
        """:param data: an existing folder, as an absolute path
        :param url: of a PostgreSQL database; default: an SQLite file in the folder
        :raises StoreError: it can't be opened
        """
        url = url or f"sqlite:///{data}/vigil.db"
        lock = FolderLock(data, alone=False)
        try:
            store = await Store.open(url, data, now_ms=clock.wall_ms, keeping=keeping)
        except BaseException:
            lock.release()
            raise
        return cls(store, clock, lock)

    async def keep(self, spec: SessionSpec, pack_digest: str) -> Kept:
        keys = await self.store.keys(spec.tenant)
        session = await self._cut_off(spec, pack_digest)
        past: Sequence[Entry] = ()
        if session is None:
            session = await self.store.create(
                spec.session_id,
                tenant=spec.tenant,
                model=spec.config.model,
                pack_digest=pack_digest,
                renderer=RENDERER,
                alias=spec.alias,
            )
        else:
            past = await session.log.read()
        kept = session
        self._ours.add(kept.id)

        async def ended(reason: str) -> None:
            if reason != RESUMABLE:
                with suppress(SessionGone):  # deleted: its end need not be recorded
                    await kept.close()

        async def released() -> None:
            self._ours.discard(kept.id)
            with suppress(SessionGone):
                await kept.release()

        salt = keys.cache_salt()
        return Kept(kept.id, kept.log, kept.frames, keys.frame_key, salt, past, ended, released)

    async def salt(self, tenant: str) -> str:
        return (await self.store.keys(tenant)).cache_salt()

    async def sweep(self) -> None:
        await self.store.sweep(self._clock.wall_ms())

    async def aclose(self) -> None:
        await self.store.close()
        self._lock.release()

    async def _cut_off(self, spec: SessionSpec, pack_digest: str) -> DurableSession | None:
        """The session that this alias had when an earlier process ended, if it can go on."""
        info = await self.store.find(spec.tenant, spec.alias)
        if info is None:
            return None
        session = await self.store.session(info.id)
        known = (info.model, info.pack_digest, info.renderer) == (spec.config.model, pack_digest, RENDERER)
        if known and info.last_seq > 0 and info.id not in self._ours:
            return session
        await session.close()
        if info.id not in self._ours:
            await session.release()
        return None


async def _nothing(*_: object) -> None:
    """Transient logs need no end."""
