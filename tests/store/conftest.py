"""Every test of the store that asks for ``url`` or ``store`` runs on SQLite and on a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from memory.store.session import DurableSession
from memory.store.store import Keeping, Store
from tests.fakes.postgres import INSTALL_HINT, PrivatePostgres, find_binaries


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(INSTALL_HINT)
    with PrivatePostgres(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/vigil.db"
    server: PrivatePostgres = request.getfixturevalue("postgres")
    return server.empty_database()


@dataclass
class Clock:
    """Unix milliseconds that move when told."""

    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Stores:
    """Opens stores over one database and one folder, as several processes would; closes them all."""

    url: str
    folder: Path
    clock: Clock
    opened: list[Store] = field(default_factory=list)

    async def open(self, keeping: Keeping | None = None, cache_bytes: int = 1 << 20) -> Store:
        store = await Store.open(
            self.url, self.folder, now_ms=self.clock, keeping=keeping, cache_bytes=cache_bytes
        )
        self.opened.append(store)
        return store

    async def reopen(self, store: Store) -> Store:
        await store.close()
        self.opened.remove(store)
        return await self.open()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(url: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Stores]:
    stores = Stores(url, tmp_path / "data", clock)
    yield stores
    for store in stores.opened:
        await store.close()


@pytest.fixture
async def store(stores: Stores) -> Store:
    return await stores.open()


async def new_session(store: Store, name: str = "s1", tenant: str = "t", **more: str) -> DurableSession:
    return await store.create(name, tenant=tenant, model="m", pack_digest="p", renderer=1, **more)


async def put(session: DurableSession, uuid: str, data: bytes) -> None:
    """Keep a frame of a session; return when it and its record are durable."""
    await asyncio.to_thread(session.frames.write, uuid, data)
    await session.frames.put(uuid, data)
    await session.log.flush()


class HeldWrites:
    """Stops a store's write transactions before they begin, until they are let go.

    ``waiting`` is set while one stands there.
    """

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting = asyncio.Event()
        self._permits = asyncio.Semaphore(0)
        self._free = False
        self._error: Exception | None = None
        self._write = store._database.write
        monkeypatch.setattr(store._database, "write", self._held)

    def let_one_go(self) -> None:
        """Let one write through."""
        self.waiting.clear()
        self._permits.release()

    def let_go(self, error: Exception | None = None) -> None:
        """Let every write through from now on, or make each raise ``error``."""
        self._error = error
        self._free = True
        self._permits.release()

    async def _held(self, work: Callable[[Connection], Any], **locks: str | None) -> Any:
        self.waiting.set()
        await self._permits.acquire()
        if self._free:
            self._permits.release()  # the next one is free too
        if self._error is not None:
            raise self._error
        return await self._write(work, **locks)
