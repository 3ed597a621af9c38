"""A replay of 250 ticks on the real engine: all are answered, and the engine computes only what is new."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import pytest

from evals.stats import audit_figures, within_windows
from tests.engine.watching import Watched, pictures, watch
from tests.engine_launch.real_engine import RealEngine

pytestmark = pytest.mark.engine

TICKS = 250
TURN_BYTES = 300
"""Of one turn in a request: a frame's id, its time, the answer, and the JSON around them."""

HEAD_BYTES = 16_000


@pytest.fixture(scope="module")
def watched(engine: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return asyncio.run(watch(engine, tmp_path_factory.mktemp("run"), pictures(TICKS), seed=20))


def test_every_tick_is_answered(watched: Watched) -> None:
    assert (watched.outcome, watched.error) == ("complete", None)
    answered = [row for row in watched.rows if row["status"] == "completed"]
    # Where the engine is slow, a solver's answer has a tick of its own.
    assert [row["media_time_s"] for row in answered if row["frames"]] == [float(n) for n in range(TICKS)]
    assert {row["retries"] for row in answered} == {0}
    assert len(answered) == len(watched.rows)
    assert watched.answered_frames == watched.seen_frames
    assert len(set(watched.seen_frames)) == TICKS


def test_it_speaks_repeats_itself_and_delegates(watched: Watched) -> None:
    summary = watched.summary
    assert summary["actions"]["response"] >= 20
    assert summary["reasons"]["deduplicated"] >= 5
    assert summary["actions"]["delegate"] >= 2
    assert watched.spoken == [row["text"] for row in watched.rows]


def test_chunks_are_summarised_and_windows_switch(watched: Watched) -> None:
    kinds = watched.kinds()
    assert kinds["summary_landed"] >= 2
    assert kinds["window_switched"] >= 3  # the first one opens the session
    assert kinds["summary_failed"] == 0


def test_the_cache_keeps_the_audits_promise(watched: Watched) -> None:
    figures = audit_figures(watched.rows)
    assert figures.ticks >= TICKS - 2 - watched.kinds()["window_switched"]
    assert figures.equal / figures.ticks >= 0.98, figures


def test_no_tick_within_a_window_computes_it_again(watched: Watched) -> None:
    assert audit_figures(watched.rows).reprefills == 0
    inside = within_windows(watched.rows)
    new = [row["prompt_tokens"] - row["cached_tokens"] for row in inside]
    # A turn is a frame of 196 tokens, some text, and what of the answer before was replaced, if it was;
    # the cache works in whole blocks.
    assert max(new) <= 2 * statistics.median(new)
    assert max(row["prompt_tokens"] for row in inside) > 20 * max(new)


def test_frames_move_once(watched: Watched) -> None:
    shown = pictures(TICKS)
    answered = [row for row in watched.rows if row["status"] == "completed"]

    def besides_the_frame(row: dict[str, Any]) -> int:
        return int(row["body_bytes"]) - 4 * len(shown[int(row["media_time_s"])]) // 3

    def typical(frames: int) -> float:
        near = [row for row in answered if abs(row["window_frames"] - frames) <= 4]
        return statistics.median(map(besides_the_frame, near))

    # The new frame apart, a request grows by the ids, times and answers of the turns before.
    assert (typical(90) - typical(10)) / 80 < TURN_BYTES
    assert max(map(besides_the_frame, answered)) < HEAD_BYTES + TURN_BYTES * 130


def test_the_report_shows_the_run(watched: Watched) -> None:
    page = (watched.out / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") > 50
    assert len(page) < 2_000_000
