"""A process without leases has no place at a database that others share: it would write to their sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.exits import SetupError
from tests.api.serving import Served
from tests.cluster.members import members
from tests.fakes.engine import FakeEngine
from tests.fakes.postgres import PrivatePostgres


async def test_it_is_refused_while_others_live(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path, count=1) as (engine, (one,)):
        store = {"url": one.settings.store.url}
        alone = Served(engine, tmp_path, store=store)
        with pytest.raises(SetupError) as refused:
            await alone.__aenter__()
        assert refused.value.code == "store_shared"
        assert one.address in str(refused.value) and "--advertise" in str(refused.value)
        assert (await one.see(0)).status_code == 200
    async with FakeEngine() as engine, Served(engine, tmp_path, store=store) as alone:
        reply = await alone.see(1)
        assert reply.status_code == 200, "the others have ended"
        assert reply.json()["interaction"]["frame_index"] == 2
