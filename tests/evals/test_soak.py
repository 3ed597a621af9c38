"""The soak and the fuzz bench at their smallest: every way to behave once, every check made."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.bench.fuzz import ROUNDS, fuzz
from evals.bench.soak import soak
from evals.bench.soak_client import WAYS

pytestmark = pytest.mark.timeout(400)  # about 30 s, but more on a busy machine


async def test_a_small_soak(tmp_path: Path) -> None:
    told = await soak(tmp_path, len(WAYS), 8.0, 3.0)
    assert told["faults"] == []
    # Too short to tell whether memory stays flat.
    assert told["checks"] | {"memory_flat": True} == dict.fromkeys(told["checks"], True)
    assert told["counts"]["answers"] > 0  # how many depends on what else the machine does
    assert told["tick_ms"]["count"] > 0
    assert told["frame_to_request_ms"]["count"] > 0
    assert told["overhead_p99_ms"] is not None
    assert told["left"] == dict.fromkeys(told["left"], 0)
    assert 0 < told["bare_work_ms"]["p50"] <= told["bare_work_ms"]["p99"] <= told["bare_work_ms"]["max"]
    assert set(told["cpu_share"]) == {"server", "engine", "generator"}


async def test_a_small_fuzz(tmp_path: Path) -> None:
    told = await fuzz(tmp_path, 500, seed=1)
    assert told["findings"] == []
    assert told["events"] == 500
    assert len(told["server_memory_mb"]) == ROUNDS
    assert told["checks"] | {"memory_flat": True} == dict.fromkeys(told["checks"], True)
