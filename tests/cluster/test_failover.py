"""Real processes: one of two orchestrators and one of two engines are killed under load."""

from __future__ import annotations

import json
from pathlib import Path

from evals.bench.failover import failover
from tests.fakes.postgres import PrivatePostgres


async def test_every_session_goes_on_and_nothing_that_was_answered_is_lost(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    told = await failover(tmp_path, postgres.empty_database(), sessions=4, seconds=5.0)
    print(json.dumps(told, indent=2))
    assert told["gone_on"] == told["sessions_with_one_id"] == 4
    assert told["answered_frames_lost"] == 0
