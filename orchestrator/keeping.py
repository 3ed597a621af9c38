"""Where a session's log and frames live: in the durable store, or only as long as the process."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from memory.facts import AnyFact, parse_fact
from memory.render import RENDERER
from memory.store.base import Entry, FrameStore
from memory.store.errors import LeaseLost, OwnedElsewhere, SessionExists, SessionGone, StoreError, StoreShared
from memory.store.leases import Process
from memory.store.session import DurableSession, SessionInfo
from memory.store.store import Keeping, Store
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.backends.store_faults import told_of
from orchestrator.folder_lock import FolderLock
from orchestrator.runtime.registry import CannotGoOn, SessionSpec
from orchestrator.session.backend import Clock, FactLog, SessionConfig
from orchestrator.session.facts import voice_of
from orchestrator.session.record import SessionRecord
from prompts.loader import PackError, pack_of
from prompts.pack import Pack

_log = logging.getLogger(__name__)

RESUMABLE = "shutdown"
"""The reason of a close after which the same session goes on when the service is back."""
ABANDONED = "open_abandoned"
"""Of the close of one that came to nothing as it was opened."""
VOICE = "voice"
"""The snapshot in which a session's reference voice lies beside its log."""


class WatchedLog(FactLog, Protocol):
    """A log that tells of each entry as it is appended."""

    def subscribe(self, callback: Callable[[Entry], None]) -> Callable[[], None]: ...


class ToldLog(FactLog):
    """A session's log whose failures are those that its client is told.

    A session that goes on in another process ends here in order: what it still says is not written.
    """

    def __init__(self, log: FactLog) -> None:
        self._log = log

    def append(self, kind: str, data: Mapping[str, Any]) -> int:
        with _told():
            try:
                return self._log.append(kind, data)
            except LeaseLost:
                return 0

    async def flush(self, seq: int | None = None) -> None:
        with _told():
            await self._log.flush(seq)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StoreError as fault:
        raise told_of(fault) from fault


@dataclass(frozen=True, slots=True)
class Kept:
    """What one session is given to remember with.

    :param frame_key: keys its frames' ids towards the engine; ``salt``: the engine's ``cache_salt``
    :param session_id: the one it had before, if it goes on
    :param past: the log so far of a session that goes on; ``packs``: the prompt packs that it names;
        ``voice``: what its log does not hold of its configuration, see ``voice_of``
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
    packs: Sequence[Pack] = ()
    voice: Mapping[str, Any] = field(default_factory=dict)

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
        if (config := record.config) is not None:
            record.config = replace(config, extra_body={**config.extra_body, **self.voice})
        return record


class Lasting(Protocol):
    """What a session is made with, and must be read with when it goes on: a prompt pack, say.

    :param renderer: which code reads its log
    :param source: kept with the session, under ``digest``; ``None``: nothing has to be
    """

    @property
    def family(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def renderer(self) -> int: ...

    def goes_on_from(self, old: Pack | None) -> bool:
        """A log that names this pack can be gone on with; ``None``: the pack is lost."""


@dataclass(frozen=True, slots=True)
class PackLasting:
    """A session whose prompts are rebuilt from a pack."""

    pack: Pack
    renderer: int = RENDERER

    @property
    def family(self) -> str:
        return self.pack.family

    @property
    def digest(self) -> str:
        return self.pack.digest

    @property
    def source(self) -> str | None:
        return self.pack.source

    def goes_on_from(self, old: Pack | None) -> bool:
        return old is not None and old.reads_like(self.pack)


class Keeper(Protocol):
    @property
    def store(self) -> Store | None:
        """Where sessions can be looked up, also when they are over."""

    async def keep(self, spec: SessionSpec, lasting: Lasting) -> Kept: ...

    async def name_of(self, tenant: str, name: str) -> str | None:
        """The tenant's own name of a session that is not over, by its id or name."""

    async def let_go(self, tenant: str, name: str) -> bool:
        """Close a kept session, by its id or name, that is not at work here. False: there is none."""

    async def salt(self, tenant: str) -> str:
        """The engine's ``cache_salt`` for a tenant's requests without a session."""

    async def sweep(self) -> None:
        """Remove what has outlived its retention; meant for every minute or so."""

    async def aclose(self) -> None: ...


class NothingLeft:
    """Of a keeper to which no earlier process has left a session."""

    async def name_of(self, tenant: str, name: str) -> str | None:
        return None

    async def let_go(self, tenant: str, name: str) -> bool:
        return False


class TransientKeeper(NothingLeft):
    """Nothing survives the process."""

    store: Store | None = None

    def __init__(self, clock: Clock, max_frame_bytes: int = 512 * 2**20) -> None:
        self._clock = clock
        self._frames = TransientFrames(max_frame_bytes)
        self._key = secrets.token_bytes(32)

    async def keep(self, spec: SessionSpec, lasting: Lasting) -> Kept:
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

    A session that a crash or a shutdown cut off goes on under its alias, if the model is the same and reads
    what was written before as it was meant (see ``Lasting``); one that was reset, expired or closed
    does not: its alias gets a fresh one.
    """

    def __init__(self, store: Store, clock: Clock, lock: FolderLock) -> None:
        self.store: Store = store
        self._lock = lock
        self._clock = clock
        self._ours: dict[str, DurableSession] = {}

    @classmethod
    async def open(
        cls,
        data: Path,
        clock: Clock,
        url: str | None = None,
        keeping: Keeping | None = None,
        process: Process | None = None,
    ) -> DurableKeeper:
        """:param data: an existing folder, as an absolute path
        :param url: of a PostgreSQL database; default: an SQLite file in the folder
        :param process: this one, where several share the database and the folder
        :raises StoreError: it can't be opened
        :raises FolderInUse: another service keeps its sessions in the folder's own file
        :raises StoreShared: others share it, and this one is not one of several
        """
        # No database is asked who else is there: a second service would go on with what the first is doing.
        lock = FolderLock(data, alone=url is None)
        url = url or f"sqlite:///{data}/vigil.db"
        try:
            store = await Store.open(url, data, now_ms=clock.wall_ms, keeping=keeping, process=process)
            try:
                await _not_shared(store)
            except BaseException:
                await store.close()
                raise
        except BaseException:
            lock.release()
            raise
        return cls(store, clock, lock)

    async def keep(self, spec: SessionSpec, lasting: Lasting) -> Kept:
        keys = await self.store.keys(spec.tenant)
        session, past, packs = await self._cut_off(spec, lasting)
        if session is None:
            if not spec.fresh:
                raise CannotGoOn
            try:
                session = await self._create(spec, lasting)
            except SessionExists:
                if self.store.leases is None:
                    raise
                # Another process has just begun a session of this alias, or let one go.
                session, past, packs = await self._cut_off(spec, lasting)
                if session is None:
                    session = await self._create(spec, lasting)
        kept = session
        self._ours[kept.id] = kept

        async def ended(reason: str) -> None:
            # One that can't be gone on with at this moment is as it was: its client will try again.
            if reason != RESUMABLE and not (past and reason == ABANDONED):
                never_was = reason == ABANDONED and not kept.log.seq
                try:
                    await (self.store.delete(kept.id) if never_was else kept.close())
                except SessionGone:
                    pass  # deleted: its end need not be recorded
                except StoreError as fault:
                    _log.warning("session %s goes on when the store does: %s", kept.id, fault.message)

        async def released() -> None:
            self._ours.pop(kept.id, None)
            with suppress(SessionGone):
                await kept.release()

        try:
            if lasting.source is not None:
                await kept.keep_pack(lasting.digest, lasting.source)
            voice = await _voice(kept, spec.config, new=not past)
        except BaseException:
            await ended(ABANDONED)
            await released()
            raise
        salt = keys.cache_salt()
        return Kept(kept.id, kept.log, kept.frames, keys.frame_key, salt, past, ended, released, packs, voice)

    async def _create(self, spec: SessionSpec, lasting: Lasting) -> DurableSession:
        return await self.store.create(
            spec.session_id,
            tenant=spec.tenant,
            model=spec.config.model,
            pack_digest=lasting.digest,
            renderer=lasting.renderer,
            alias=spec.alias,
        )

    async def name_of(self, tenant: str, name: str) -> str | None:
        with _told():
            info = await kept_session(self.store, tenant, name)
        return info.alias if info is not None else None

    async def let_go(self, tenant: str, name: str) -> bool:
        with _told():
            info = await kept_session(self.store, tenant, name)
            if info is None or info.id in self._ours:
                return False
            try:
                await self.store.claim(info.id)
                session = await self.store.session(info.id)
            except SessionGone:
                return False
            await session.close()
            await session.release()
        return True

    async def salt(self, tenant: str) -> str:
        return (await self.store.keys(tenant)).cache_salt()

    async def sweep(self) -> None:
        await self.store.sweep(self._clock.wall_ms())

    async def aclose(self) -> None:
        await self.store.close()
        self._lock.release()

    async def _cut_off(
        self, spec: SessionSpec, lasting: Lasting
    ) -> tuple[DurableSession | None, Sequence[Entry], Sequence[Pack]]:
        """The session that this alias had when an earlier process ended, if it can go on: with its log and
        the packs that it names."""
        info = await self.store.find(spec.tenant, spec.alias)
        if info is None:
            return None, (), ()
        mine = self._ours.get(info.id)
        if mine is not None and self.store.leases is not None:
            # It may have been lost already, and be on its way out here.
            owner = await self.store.leases.owner(info.id)
            if owner is not None and owner.lives and owner.id != self.store.leases.process.id:
                raise OwnedElsewhere(info.id, owner.address)
        if mine is not None and mine.log.error is not None:
            raise StoreError(f"session {info.id} is being let go; it goes on in a moment")
        if mine is None and self.store.leases is not None:
            try:
                await self.store.claim(info.id)
                # What its former owner wrote last is there now, and nothing will follow.
                info = await self.store.info(info.id)
            except SessionGone:
                return None, (), ()
        session = await self.store.session(info.id)
        known = (info.model, info.renderer) == (spec.config.model, lasting.renderer)
        if known and info.last_seq > 0 and info.id not in self._ours:
            packs = await kept_packs(self.store, info.id)
            past = await session.log.read()
            if all(map(lasting.goes_on_from, named_packs(past, packs))):
                return session, past, tuple(packs.values())
            _log.warning("session %s can't go on with the prompt pack %s", info.id, lasting.family)
        await session.close()
        if info.id not in self._ours:
            await session.release()
        return None, (), ()


async def _voice(session: DurableSession, config: SessionConfig, *, new: bool) -> Mapping[str, Any]:
    """The reference voice that a session was opened with."""
    if not new:
        found = await session.snapshot(VOICE)
        return found.data if found is not None else {}
    if voice := voice_of(config):
        await session.save_snapshot(VOICE, 0, voice)
    return voice


async def kept_session(store: Store, tenant: str, name: str) -> SessionInfo | None:
    """A tenant's session that is not over, by its id or by the tenant's own name of it."""
    try:
        info: SessionInfo | None = await store.info(name)
    except SessionGone:
        info = None
    if info is None or info.tenant != tenant:
        info = await store.find(tenant, name)
    return info if info is not None and info.closed_ms is None else None


async def kept_packs(store: Store, session_id: str) -> dict[str, Pack]:
    """The prompt packs of a session, by digest; one that this build can't read is left out."""
    packs: dict[str, Pack] = {}
    for digest, source in (await store.packs(session_id)).items():
        try:
            packs[digest] = pack_of(source)
        except PackError as error:
            _log.warning("the prompt pack %s of session %s can't be read: %s", digest, session_id, error)
    return packs


def named_packs(past: Sequence[Entry], packs: Mapping[str, Pack]) -> list[Pack | None]:
    """The packs that a log names, ``None`` for each that is missing."""
    named = (entry.data["pack_digest"] for entry in past if entry.kind in ("memory_opened", "pack_set"))
    return [packs.get(digest) for digest in named]


async def _not_shared(store: Store) -> None:
    """Without leases of its own a process would take others' sessions for cut off, and write to them."""
    if store.leases is None and (others := await store.sharers()):
        lives = max(other.left_ms for other in others) / 1000
        raise StoreShared(
            f"{', '.join(other.address for other in others)} share it: start with --advertise URL, so that "
            f"each session has one owner; a process that is gone counts for {lives:.0f} s more"
        )


async def _nothing(*_: object) -> None:
    """Transient logs need no end."""
