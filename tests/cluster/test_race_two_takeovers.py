"""Two processes take a dead one's session at the same moment.

Contract: one of them has it afterwards, the other passes its request on to that one; no frame of either
request is lost, and both clients get an answer of the same session.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.members import members
from tests.fakes.postgres import PrivatePostgres


async def test_one_of_them_has_it(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path, 3) as (_, (one, *others)):
        for turn in range(3):
            headers = {"x-session-id": f"cam-{turn}"}
            first = (await one.see(0, headers=headers)).json()["interaction"]["server_session_id"]
            await one.over()
            replies = await asyncio.gather(*(each.see(1, headers=headers) for each in others))
            assert [reply.status_code for reply in replies] == [200, 200]
            assert {r.json()["interaction"]["server_session_id"] for r in replies} == {first}
            assert sum(first in each.live() for each in others) == 1
            seen = (await others[0].client.get(f"/v1/sessions/{first}")).json()
            assert seen["counts"]["frames"] >= 2
            await one.owning.beat()
