"""An owner sleeps through its life, somebody else takes its session over, and it wakes.

Contract: it adds not one fact to the log and shows the engine nothing more; it notices by itself at its next
heartbeat, ends its side, and passes later requests on. A heartbeat that is late only, with nothing taken
meanwhile, costs nothing.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.members import members, prompts
from tests.fakes.postgres import PrivatePostgres


async def test_one_that_was_robbed_writes_nothing_more(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (engine, (one, other)):
        await one.see(0)
        session = one.live()[0]
        await one.over()
        assert (await other.see(1)).status_code == 200
        asked, store = len(prompts(engine)), other.core.keeper.store
        assert store is not None
        facts = (await store.info(session)).last_seq
        woken = await one.see(2)  # it does not know yet
        assert woken.status_code in (409, 503), woken.text
        assert len(prompts(engine)) == asked
        assert (await store.info(session)).last_seq == facts
        await one.owning.beat()
        passed = await one.see(3)
        assert passed.status_code == 200
        assert passed.json()["interaction"]["server_session_id"] == session
        assert other.live() == [session] and not one.live()
        assert (await store.info(session)).closed_ms is None


async def test_one_that_is_late_and_was_not_robbed_goes_on(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        await one.see(0)
        await one.over()
        await one.owning.beat()
        assert (await other.see(1)).status_code == 200
        assert len(one.live()) == 1 and not other.live() and one.owning.lost == 0
