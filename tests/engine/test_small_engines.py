"""Engines with little room: the self-check finds their limits, and windows are planned inside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.watching import SIDE, SMALL_SIDE, pictures, watch
from tests.engine_launch.real_engine import RealEngine

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("context", "images", "ticks", "side"), [(12000, 8, 300, SMALL_SIDE), (8192, 32, 600, SIDE)]
)
def test_a_long_replay_ends_without_a_failed_tick(
    small_engine: Callable[..., RealEngine], tmp_path: Path, context: int, images: int, ticks: int, side: int
) -> None:
    """Long enough for as many chunks as long-term blocks take: the fewer pictures, the shorter they are."""
    engine = small_engine(context=context, images=images)
    watched = asyncio.run(watch(engine, tmp_path, pictures(ticks, side), seed=7))
    assert (watched.outcome, watched.error) == ("complete", None)
    facts = watched.summary["engine"]
    assert (facts["context_tokens"], facts["max_images"]) == (context, images), "found by the self-check"
    assert [row["tick"] for row in watched.rows] == list(range(1, ticks + 1))
    assert {row["status"] for row in watched.rows} == {"completed"}
    assert watched.answered_frames == watched.seen_frames
    assert len(set(watched.seen_frames)) == ticks
    kinds = watched.kinds()
    # Nothing was learned from a refusal: every prompt was planned inside the limits.
    assert kinds["tick_failed"] == kinds["limits_learned"] == kinds["frame_dropped"] == 0
    assert max(row["window_frames"] for row in watched.rows) <= images
    assert max(row["prompt_tokens"] for row in watched.rows) < context
    # Memory goes on being made: chunks became summaries, and those long-term blocks.
    assert kinds["summary_landed"] >= 20
    assert kinds["rollup_landed"] >= 3
    assert kinds["summary_failed"] <= kinds["summary_landed"] // 20
