"""Several whole services, each on a socket of its own, over one PostgreSQL, one folder and one engine.

Their hearts beat when a test says so: a life lasts as long as a test may.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

from orchestrator.owning import Owning
from tests.api.serving import Served
from tests.engine_launch.real_engine import free_port
from tests.fakes.engine import FakeEngine
from tests.fakes.postgres import PrivatePostgres


class Member(Served):
    """One of several services."""

    def __init__(self, engine: FakeEngine, folder: Path, url: str, **settings: Any) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        store = {"url": url, "heartbeat_s": 300.0, "life_s": 600.0}
        defaults: dict[str, Any] = {"advertise": self.address, "store": store, "decision": {"gate": False}}
        super().__init__(engine, folder, **{**defaults, **settings})

    @property
    def owning(self) -> Owning:
        assert self.core.owning is not None
        return self.core.owning

    async def over(self) -> None:
        """For the others this one is dead, whatever it does itself."""
        store = self.core.keeper.store
        assert store is not None
        dead = text("UPDATE processes SET until_ms = 0 WHERE address = :it").bindparams(it=self.address)
        await store._database.write(lambda connection: connection.execute(dead).rowcount)

    def live(self) -> list[str]:
        return [session.id for session in self.core.registry.sessions() if session.is_open]


@asynccontextmanager
async def members(
    postgres: PrivatePostgres, folder: Path, count: int = 2, **settings: Any
) -> AsyncIterator[tuple[FakeEngine, list[Member]]]:
    url = postgres.empty_database()
    async with FakeEngine() as engine, AsyncExitStack() as stack:
        yield (
            engine,
            [await stack.enter_async_context(Member(engine, folder, url, **settings)) for _ in range(count)],
        )


def prompts(engine: FakeEngine) -> list[list[dict[str, Any]]]:
    """The messages of each decision, in order."""
    return [seen.json["messages"] for seen in engine.chats if seen.kind == "decide"]
