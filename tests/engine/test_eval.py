"""Scenes through the real engine: a run, the same again from its record, and its decisions asked again cold.

Contract: what the record holds is enough to make the same prompts and decisions without the engine; and whole
prompts without any cache give the first token that prompts built from the cache gave, wherever the model was
sure. The stand-in decides by program, so its own score says nothing here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evals.replay.core import engine_of
from evals.replay.folder import read_rows
from evals.replay.options import Pace
from evals.runs.audit import audit
from evals.runs.manifest import read_manifest
from evals.runs.reporting import report
from evals.runs.rerun import finished_clips, rerun
from evals.runs.runner import Runner, Suite
from evals.runs.sources import source_of
from evals.runs.tape_reader import read_tape, requests
from evals.runs.ticks import TickWatcher
from evals.scenes.datasets import Recipe
from evals.scoring.folder import read_run
from orchestrator.settings import Settings
from tests.engine_launch.real_engine import RealEngine
from tests.evals.runs.stand import Quiet

pytestmark = pytest.mark.engine

RECIPE = Recipe("short", 9000, 2, 1.0, ("alert", "count"), chunk_s=20.0)
CHUNK = 20


async def test_run_rerun_and_audit(engine: RealEngine, tmp_path: Path) -> None:
    settings = Settings(
        engine=engine.url,
        family="joyvl",
        decision={"seed": 5},
        memory={"chunk_frames": CHUNK, "overlap_frames": 4},
    )
    clips = tuple(RECIPE.clips())
    run, again = tmp_path / "run", tmp_path / "again"
    suite = Suite("short", "vigil", clips)
    with engine_of(settings, lambda line: None) as running:
        watcher = TickWatcher(settings, running, lambda clip: source_of(clip, {}), Pace.FAST)
        runner = Runner(run, suite, watcher, streams=2)
        outcome = await runner.run(Quiet(), asyncio.Event())
        assert (outcome.word, outcome.finished) == ("complete", 2)

        assert await rerun(run, again, lambda clip, differ: None) == []

        findings = await audit(
            run,
            read_manifest(run),
            finished_clips(run),
            {},
            settings,
            running,
            lambda finding: None,
            read_run(run).digest,
            every=True,
            limit=30,
        )
    assert [each for each in findings if each.error is not None] == []
    assert any(each.sure for each in findings)
    assert [each for each in findings if each.faulty] == []
    for clip in clips:
        folder = run / "clips" / clip.id
        tape = read_tape(folder / "tape.jsonl")
        purposes = {each.purpose.partition(" ")[0] for each in requests(tape, clip.id)}
        assert {"decision", "summary", "prewarm"} <= purposes
        rows = read_rows(folder / "decisions.jsonl")
        assert sum(row["frames"] for row in rows) == 60
        assert len({row["window"] for row in rows if row["window"] is not None}) >= 2
    assert report(run).is_file()
