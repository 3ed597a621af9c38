"""Two real engines: the stand-in watches and summarises pictures, a real language model without eyes merges.

Contract: long-term blocks are words of the language model; it is never shown a picture, and never in the way
of a tick.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.facts import RollupLanded
from tests.engine.watching import SMALL_SIDE, pictures, watch
from tests.engine_launch.real_engine import RealEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]  # two engines may have to be booted

TICKS = 150
PATIENCE_S = 240.0
"""Longer than anyone would wait: the two engines may share their cores with others."""


def test_a_model_without_eyes_writes_the_long_term_blocks(
    small_engine: Callable[..., RealEngine],
    words_engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VIGIL_SUMMARIZER__URL", words_engine)
    monkeypatch.setenv("VIGIL_SUMMARIZER__MODEL", "smollm2")
    monkeypatch.setenv("VIGIL_SUMMARIZER__IMAGES", "false")
    monkeypatch.setenv("VIGIL_SUMMARIZER__DEADLINE_S", str(PATIENCE_S))
    monkeypatch.setenv("VIGIL_SUMMARIZER__PARAMS", json.dumps({"max_tokens": 60, "temperature": 0}))
    engine = small_engine(context=12000, images=8)
    watched = asyncio.run(watch(engine, tmp_path, pictures(TICKS, SMALL_SIDE), seed=3))
    assert (watched.outcome, watched.error) == ("complete", None)
    assert {row["status"] for row in watched.rows} == {"completed"}
    blocks = [fact.text for fact in watched.facts if isinstance(fact, RollupLanded)]
    assert blocks
    assert all(len(block.split()) >= 3 and "<|" not in block for block in blocks)
    # The engine itself merges only what the other did not manage in two attempts.
    merged = [
        request for request in watched.asked if "[Merge request]" in str(request.messages[-1]["content"])
    ]
    assert len(merged) < len(blocks)
    rows = [row for row in watched.rows if row["cached_tokens"] is not None]
    kept = [row["cached_tokens"] >= row["expected_cached_tokens"] for row in rows]
    assert sum(kept) / len(kept) >= 0.98
