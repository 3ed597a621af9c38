"""Replays against the real CPU engine: what the product promises of reuse, small engines and crashes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evals import stats
from evals.clips import clip, slowed
from evals.replay.folder import read_rows
from evals.replay.options import Exit
from evals.replay.source import Video
from tests.engine_launch.real_engine import RealEngine
from tests.evals.test_in_process import Run, Watched

pytestmark = pytest.mark.engine
TICKS = 250


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real clip of 250 frames, one a second."""
    return slowed(clip("bikes.mp4"), tmp_path_factory.mktemp("clip") / "bikes-slow.mp4", 25)


@pytest.fixture(scope="module")
def long_run(engine: RealEngine, video: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of 250 ticks watched by ``vigil replay`` as a person would run it."""
    out = tmp_path_factory.mktemp("run")
    how = ("--engine", engine.url, "--family", "joyvl", "--pace", "fast", "--seed", "7")
    replay = ("replay", str(video), "--query", "What happens?", *how, "--out", str(out))
    command = [sys.executable, "-m", "orchestrator.cli", *replay]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_tick_of_a_long_run_is_answered(long_run: Path) -> None:
    rows, summary = (
        read_rows(long_run / "decisions.jsonl"),
        json.loads((long_run / "summary.json").read_text()),
    )
    assert sum(row["frames"] for row in rows) == TICKS
    assert {row["status"] for row in rows} == {"completed"}
    assert summary["actions"]["response"] >= 20
    assert summary["reasons"]["deduplicated"] >= 5
    assert summary["actions"]["delegate"] >= 2
    assert len(summary["windows"]) >= 2


def test_reuse_is_as_promised_and_no_window_is_prefilled_twice(long_run: Path) -> None:
    rows = read_rows(long_run / "decisions.jsonl")
    audit = stats.audit_figures(rows)
    assert audit.ticks >= 0.9 * TICKS
    assert audit.equal >= 0.98 * audit.ticks, audit.shortfalls
    assert audit.reprefills == 0
    assert (stats.reuse_ratio(rows) or 0) > 0.9


def test_frames_move_once(long_run: Path) -> None:
    """A body holds the newest frame and, for each older one, its id and its time: never its bytes again."""
    rows = [row for row in read_rows(long_run / "decisions.jsonl") if row["frames"] and not row["retries"]]
    payload = min(row["body_bytes"] for row in rows)
    for row in rows:
        assert row["body_bytes"] < 2 * payload + 600 * row["window_frames"]


def test_the_report_shows_the_run(long_run: Path) -> None:
    page = (long_run / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") > 50
    assert len(page) < 2_000_000


@pytest.mark.parametrize(("context", "images"), [(8192, 32), (12000, 8)])
async def test_a_small_engine_runs_to_the_end(
    small_engine: Callable[..., RealEngine], video: Path, tmp_path: Path, context: int, images: int
) -> None:
    engine = await asyncio.to_thread(small_engine, context=context, images=images)
    run = await Run(engine, tmp_path, Video(str(video), loop=3), max_ticks=600).go()
    assert run.ending.exit_code is Exit.OK
    assert len(run.rows) >= 600
    assert {row["status"] for row in run.rows} == {"completed"}
    asked = [row for row in run.rows if row["prompt_tokens"]]
    assert max(row["prompt_tokens"] for row in asked) < context
    assert max(row["window_frames"] for row in asked) <= images


async def test_an_engine_killed_in_the_middle_and_started_again(engine: RealEngine, tmp_path: Path) -> None:
    """The run is of a file, so it waits: it finishes, no frame is lost or doubled, nothing is said twice."""
    restarting: list[asyncio.Task[Any]] = []

    async def kill_at_15(n: int) -> None:
        if n == 15:
            await asyncio.to_thread(engine.kill)
            restarting.append(asyncio.create_task(asyncio.to_thread(engine.restart)))

    times = [1000 * n for n in range(30)]
    try:
        run = await Run(engine, tmp_path, Watched(times, kill_at_15)).go()
    finally:
        await asyncio.gather(*restarting)
    answered = [row for row in run.rows if row["status"] == "completed"]
    assert run.ending.exit_code is Exit.OK
    assert [row["media_time_s"] for row in answered if row["frames"]] == [time / 1000 for time in times]
    assert sum(row["frames"] for row in answered) == len(times)
    spoken = [(row["response_id"], row["text"]) for row in run.rows if row["text"]]
    assert len({response for response, _ in spoken}) == len(spoken)
