"""Several processes that share a database, as far as the store can tell."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from sqlalchemy import text

from memory.store.leases import Process
from memory.store.store import Store
from tests.store.conftest import Clock

LIFE_S = 600.0
"""Nothing dies of itself while a test runs: see ``Processes.die``."""


class Processes:
    def __init__(self, url: str, folder: Path, clock: Clock) -> None:
        self._url, self._folder, self._clock = url, folder, clock
        self._started = 0
        self._opened: list[Store] = []
        self._named: dict[str, Store] = {}

    async def __aenter__(self) -> Processes:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for store in self._opened:
            await store.close()

    async def start(self, name: str) -> Store:
        """A process at the address ``http://NAME``."""
        self._started += 1
        process = Process(f"{name}-{self._started}", f"http://{name}", LIFE_S)
        store = await Store.open(self._url, self._folder, now_ms=self._clock, process=process)
        self._opened.append(store)
        self._named[name] = store
        return store

    async def die(self, name: str) -> None:
        """Its life is over, whether it knows or not."""
        leases = self._named[name].leases
        assert leases is not None
        over = text("UPDATE processes SET until_ms = 0 WHERE id = :id").bindparams(id=leases.process.id)
        await self._named[name]._database.write(lambda connection: connection.execute(over).rowcount)

    async def stop(self, name: str) -> None:
        """It ends in order."""
        store = self._named[name]
        self._opened.remove(store)
        await store.close()
