"""The genuine scorer of Omni-DuplexEval reads what a run of ours exports, and scores it as it is.

Its judge is a chat endpoint over a real socket that answers by rule: what is held here is the artifact, its
clock, its times and its samples, not what a language model thinks of the words.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from evals.clips import clip as packaged
from evals.readers import open_dataset
from evals.replay.source import Video
from evals.runs.export import export
from orchestrator.wire.audio import write_wav
from tests.evals.runs.stand import watch
from tests.evals.runs.test_native import engine
from tests.evals.runs.test_native import watch as listen
from tests.fakes.engine import FakeEngine, Seen
from tests.fakes.solver import Asked, FakeSolver
from tests.native.serving import QUESTION
from tests.peers.environment import peer_venv

pytestmark = pytest.mark.peer

SCORER = """
import argparse
from vllm_omni.entrypoints.cli.benchmark.omni_duplex_eval import add_cli_args, run
parser = argparse.ArgumentParser()
add_cli_args(parser)
raise SystemExit(run(parser.parse_args()))
"""
EVENT_S = 3.0


def says_at_event(seen: Seen) -> str:
    return "</response> A bike is there. It is red." if len(seen.images) == int(EVENT_S) + 1 else "</silence>"


def judged(asked: Asked) -> str:
    """Says yes to reminders that speak of a bike, and is content with every sentence."""
    text = str(asked.body["messages"][-1]["content"])
    scores = {"success_score": int("A bike" in text), "temporal_score": 3, "is_relevant": 1}
    return json.dumps({**scores, "content_score": 2.5})


async def score(*arguments: str) -> str:
    venv = await asyncio.to_thread(peer_venv)
    command = [str(venv.python), "-c", SCORER, *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=300, env=venv.environment(os.environ)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


async def test_the_genuine_scorer_accepts_our_artifact(tmp_path: Path) -> None:
    bikes = packaged("bikes.mp4")
    rows = [
        {"id": "r1", "split": "PR_event_reminder", "question_text": "Say when a bike is there."},
        {"id": "r2", "split": "PR_event_reminder", "question_text": "Say when a bike is gone."},
        {"id": "d1", "split": "RTD_counting", "question_text": "Count the bikes."},
    ]
    rows[0] |= {"reminder1": EVENT_S, "answer1": "a bike"}
    rows[1] |= {"reminder1": EVENT_S + 2, "answer1": "no bike"}
    source = tmp_path / "set.jsonl"
    rows = [row | {"video": bikes.name, "video_duration": 10} for row in rows]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = open_dataset(source, videos=bikes.parent)
    assert found.missing == ()
    run, out, scored = tmp_path / "run", tmp_path / "out", tmp_path / "scores"
    async with FakeEngine(says_at_event) as engine:
        outcome = await watch(
            run,
            engine,
            found.clips,
            source_of=lambda clip: Video(str(found.video(clip))),
            memory={"chunk_frames": 50},
        )
    assert outcome.word == "complete"
    assert export(run, out).samples == 3

    async with FakeSolver(judged) as judge:
        told = ("--dataset", str(out / "dataset.jsonl"), "--media-root", str(bikes.parent))
        where = ("--response-root", str(out / "responses"), "--score-root", str(scored))
        how = ("--judge-base-url", judge.url, "--judge-model", "rule", "--judge-video-mode", "frame-sample")
        await score("evaluate", *told, *where, *how, "--allow-invalid-clock")
        told_last = await score("summarize", "--score-root", str(scored))
    summary = json.loads(told_last[told_last.index("{\n") :])  # behind what its imports log
    assert summary["samples"] == 3
    assert summary["pr"]["mean_all_success"] == 0.5, "what was said before its window counts for nothing"
    assert summary["rtd"]["mean_avg_temporal_score"] == 3.0 and summary["rtd"]["mean_content_score"] == 2.5
    described = json.loads((scored / "RTD_counting" / "d1.json").read_text())
    assert [s["sentence"] for s in described["temporal"]["sentences"]] == ["A bike is there.", "It is red."]
    assert all(s["error"] is None and s["start"] == EVENT_S for s in described["temporal"]["sentences"])
    assert any("image_url" in str(asked.body["messages"][-1]) for asked in judge.asked)


async def test_it_accepts_what_a_full_duplex_engine_said_in_real_time(tmp_path: Path) -> None:
    """A question that is spoken, a model that speaks by itself: no clock has to be excused."""
    packaged_clip = packaged("bikes.mp4")
    media = tmp_path / "media"
    media.mkdir()
    shutil.copy(packaged_clip, media)
    for name in ("question", "voice"):
        (media / f"{name}.wav").write_bytes(write_wav(QUESTION.samples, QUESTION.rate_hz))
    row = {"id": "r1", "split": "PR_event_reminder", "question_text": "Say when a bike is there."}
    row |= {"reminder1": EVENT_S, "answer1": "a bike", "question_audio": "question.wav"}
    described = {"id": "d1", "split": "RTD_counting", "question_text": "Count the bikes."}
    rows = [
        each | {"video": packaged_clip.name, "video_duration": 6, "question_audio": "question.wav"}
        for each in (row, described)
    ]
    source = media / "set.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in rows))
    async with engine() as talker:
        outcome = await listen(tmp_path / "run", media, talker, open_dataset(source).clips)
    assert outcome.word == "complete"
    assert export(tmp_path / "run", tmp_path / "out").samples == 2
    async with FakeSolver(judged) as judge:
        told = ("--dataset", str(tmp_path / "out" / "dataset.jsonl"), "--media-root", str(media))
        where = ("--response-root", str(tmp_path / "out" / "responses"), "--score-root", str(tmp_path / "s"))
        how = ("--judge-base-url", judge.url, "--judge-model", "rule", "--judge-video-mode", "frame-sample")
        await score("evaluate", *told, *where, *how)
    reminded = json.loads((tmp_path / "s" / "PR_event_reminder" / "r1.json").read_text())
    assert reminded["pr"]["all_success"] is True and reminded["response_meta"]["clock"] == "media"
    described = json.loads((tmp_path / "s" / "RTD_counting" / "d1.json").read_text())
    first, second = described["temporal"]["sentences"]
    assert (first["sentence"], second["sentence"]) == ("A bike is there.", "It is red.")
    assert EVENT_S < first["start"] < second["start"], "each at the time at which it was said"


async def test_its_clock_check_reads_ours(tmp_path: Path) -> None:
    """A run that was not in real time says so, and the scorer refuses it unless it is told to take it."""
    bikes = packaged("bikes.mp4")
    source = tmp_path / "set.jsonl"
    row = {"id": "r1", "split": "PR_event_reminder", "question_text": "When?", "reminder1": 1.0}
    source.write_text(json.dumps(row | {"video": bikes.name, "video_duration": 10}) + "\n")
    found = open_dataset(source, videos=bikes.parent)
    async with FakeEngine() as engine:
        await watch(tmp_path / "run", engine, found.clips)
    export(tmp_path / "run", tmp_path / "out")
    with pytest.raises(AssertionError, match="clock=invalid"):
        await score(
            *("evaluate", "--dataset", str(tmp_path / "out" / "dataset.jsonl")),
            *("--response-root", str(tmp_path / "out" / "responses"), "--score-root", str(tmp_path / "s")),
            *("--judge-base-url", "http://127.0.0.1:9", "--judge-model", "none"),
        )
