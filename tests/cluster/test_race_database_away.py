"""The database is away for longer than a life, for both processes.

Contract: nobody gives its sessions up because of that. When the database is back, an owner that says first
that it lives keeps everything; heartbeats that fail end nothing and raise nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.members import members
from tests.fakes.postgres import PrivatePostgres


async def test_the_owner_goes_on(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        await one.see(0)
        await asyncio.to_thread(postgres.stop)
        try:
            await one.owning.beat()
            await other.owning.beat()
        finally:
            await asyncio.to_thread(postgres.start)
        await one.owning.beat()
        replies = [
            await each.see(n, headers={"x-session-id": "cam"}) for n, each in enumerate((one, other), 1)
        ]
        assert [reply.status_code for reply in replies] == [200, 200]
        assert replies[-1].json()["interaction"]["frame_index"] == 3
        assert len(one.live()) == 1 and not other.live() and one.owning.lost == 0
