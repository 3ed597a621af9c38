"""Runs of a small data set through the real session core, against the scripted engine over a real socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from evals.readers.clip import Clip
from evals.replay.folder import read_rows
from evals.replay.options import ReplayError
from evals.runs.clips import queries_of
from evals.runs.manifest import RunError
from evals.runs.tape import digest_of
from evals.runs.tape_reader import read_tape, requests
from orchestrator.exits import Exit
from tests.evals.drives import ListSource
from tests.evals.runs.stand import SECONDS, Quiet, clip, script, watch
from tests.fakes.engine import FakeEngine


def kept(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


async def test_each_clip_has_a_folder_with_its_decisions_and_its_tape(tmp_path: Path) -> None:
    progress = Quiet()
    async with FakeEngine(script) as engine:
        outcome = await watch(tmp_path, engine, [clip("one"), clip("two")], progress=progress)
    assert (outcome.word, outcome.finished, outcome.failed) == ("complete", 2, {})
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["format"], run["outcome"], run["seed"]) == ("vigil-eval-1", "complete", 3)
    assert run["dataset"]["clips"] == 2 and run["settings"]["memory"]["chunk_frames"] == 6
    assert {"vigil", "engine", "renderer"} <= set(run["versions"]) and run["pack"]["digest"]
    for name in ("one", "two"):
        folder = tmp_path / "clips" / name
        rows = read_rows(folder / "decisions.jsonl")
        assert sum(row["frames"] for row in rows) == SECONDS
        assert any(row["action"] == "response" for row in rows)
        summary = json.loads((folder / "summary.json").read_text())
        assert (summary["outcome"], summary["ticks"]) == ("complete", len(rows))
        assert json.loads((folder / "clip.json").read_text())["id"] == name
    assert sorted(progress.begun) == ["one", "two"] and set(progress.summaries) == {"one", "two"}


async def test_a_tape_holds_every_request_as_it_went_out(tmp_path: Path) -> None:
    async with FakeEngine(script) as engine:
        await watch(tmp_path, engine, [clip("one")])
        sent = [seen for seen in engine.requests if seen.session]
    asked = list(requests(read_tape(tmp_path / "clips" / "one" / "tape.jsonl"), "one"))
    decisions = [each for each in asked if each.purpose.startswith("decision ")]
    assert len(decisions) == len(read_rows(tmp_path / "clips" / "one" / "decisions.jsonl"))
    assert any(each.purpose.startswith("summary 0/1") for each in asked)
    assert any(each.purpose.startswith("prewarm ") for each in asked)
    assert len(sent) == len(asked)
    for each in asked:
        assert digest_of(each.messages) == each.digest
        assert each.messages[0]["role"] in ("system", "user")


async def test_a_run_that_was_broken_off_goes_on_and_leaves_finished_clips_alone(tmp_path: Path) -> None:
    """The first clip is finished and the second is in the middle when it ends: only the second is redone."""
    stop, progress = asyncio.Event(), Quiet()

    def after_a_while() -> None:
        if "one" in progress.summaries and progress.ticks > SECONDS + 3:
            stop.set()

    progress.on_tick = after_a_while
    clips = [clip("one"), clip("two"), clip("three")]
    async with FakeEngine(script) as engine:
        first = await watch(tmp_path, engine, clips, progress=progress, stop=stop, streams=1)
        assert (first.word, first.finished) == ("interrupted", 1)
        assert json.loads((tmp_path / "run.json").read_text())["outcome"] == "interrupted"
        before, again = kept(tmp_path / "clips" / "one"), Quiet()
        second = await watch(tmp_path, engine, clips, progress=again, streams=1)
    assert (second.word, second.finished, second.skipped) == ("complete", 2, 1)
    assert again.finished == 1 and again.begun == ["two", "three"]
    assert kept(tmp_path / "clips" / "one") == before


async def test_a_clip_that_changed_is_watched_again_and_a_run_with_other_settings_is_refused(
    tmp_path: Path,
) -> None:
    async with FakeEngine(script) as engine:
        await watch(tmp_path, engine, [clip("one", 4)])
        with pytest.raises(RunError, match=r"settings\.memory\.keep.*another --out"):
            await watch(tmp_path, engine, [clip("one", 4)], memory={"keep": "nothing"})
        with pytest.raises(RunError, match=r"dataset\.digest"):
            await watch(tmp_path, engine, [clip("one", 5)])
        (tmp_path / "clips" / "one" / "clip.json").write_text("{}")
        progress = Quiet()
        assert (await watch(tmp_path, engine, [clip("one", 4)], progress=progress)).finished == 1
    assert progress.begun == ["one"]


async def test_one_clip_that_cannot_be_played_costs_itself_alone(tmp_path: Path) -> None:
    def source_of(each: Clip) -> ListSource:
        if each.id == "two":
            raise ReplayError(Exit.NO_SOURCE, "no_video", "two.mp4 was not found")
        return ListSource([0, 1000])

    async with FakeEngine(script) as engine:
        clips = [clip("one"), clip("two"), clip("three")]
        outcome = await watch(tmp_path, engine, clips, source_of=source_of)
    assert (outcome.word, outcome.finished) == ("failed", 2)
    assert outcome.failed == {"two": "two.mp4 was not found"}


async def test_clips_do_not_share_the_engines_cache(tmp_path: Path) -> None:
    """The same pictures and questions twice: what one cost does not make the other cheaper."""
    twins = [clip("one"), clip("two", queries=[{"id": "q1", "text": "What happens in one?"}])]
    async with FakeEngine(script) as engine:
        await watch(tmp_path, engine, twins, streams=1)
    first = [read_rows(tmp_path / "clips" / name / "decisions.jsonl")[0] for name in ("one", "two")]
    assert first[0]["prompt_tokens"] == first[1]["prompt_tokens"]
    assert [row["cached_tokens"] for row in first] == [0, 0]


def test_at_one_time_the_old_query_goes_before_the_new_one_comes() -> None:
    queries = [
        {"id": "a", "at_s": 0, "text": "First?", "until_s": 10},
        {"id": "b", "at_s": 10, "text": "Second?", "until_s": 30},
        {"id": "c", "at_s": 20, "text": "Third?", "until_s": 25},
    ]
    told = [(q.at_s, q.text) for q in queries_of(clip("one", 60, queries=queries, slots=[]))]
    assert told == [(0, "First?"), (10, None), (10, "Second?"), (20, "Third?"), (25, None)]
