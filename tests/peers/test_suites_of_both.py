"""The whole service in front of an engine, scripted and genuine: both suites, a session each.

In real time, so with one input; what the suites are about is told in ``tests/native``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from orchestrator.offline.drive import Played, PlayOptions, play
from tests.native.checks import wrong_with
from tests.native.serving import ORDER, QUESTION, NativeServed, reference
from tests.peers.stand import Stand
from tests.peers.test_link import freed, stand, stands

__all__ = ["stand", "stands"]


@asynccontextmanager
async def served(folder: Path, stand: Stand) -> AsyncIterator[NativeServed]:
    async with NativeServed(folder, max_sessions=2, elsewhere=(stand.url, stand.model)) as service:
        yield service
    await freed(stand)


async def played(service: NativeServed, *, asks: bool) -> Played:
    options = PlayOptions(
        service.url,
        session={"ref_audio": reference()},
        asks=asks,
        tail_ms=0 if asks else 2000,
        quiet_s=1.5,
        drain_s=20.0,
    )
    return await play([ORDER if asks else QUESTION], options, service.clock)


async def test_the_models_own_policy_is_carried_through(tmp_path: Path, stand: Stand) -> None:
    await stand.script("pattern:LLSE")
    async with served(tmp_path, stand) as service:
        result = await played(service, asks=False)
        assert result.ok and result.drained, result.against
        for answer in result.record.answers.values():
            assert wrong_with(answer) == []
            assert answer.ledger["played_ms"] == answer.audio_ms
        decided = [row["decision"] for row in result.rows if row["kind"] == "unit"]
        assert decided[:3] == ["listen", "listen", "speak"]


async def test_a_requested_turn_gets_one_response_that_can_be_heard(tmp_path: Path, stand: Stand) -> None:
    await stand.script("pattern:E")
    async with served(tmp_path, stand) as service:
        result = await played(service, asks=True)
        assert result.ok and result.drained, result.against
        (answer,) = result.record.answers.values()
        assert wrong_with(answer) == []
        timing = result.record.timings.report(answer.response_id)
        assert timing["commit_to_first_audio_ms"] > 0
        assert np.isfinite(result.heard).all() and result.heard.any()
