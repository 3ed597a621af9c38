"""A run as another scorer's artifact: the sentences, their times, and the samples they belong to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.readers import open_dataset
from evals.runs.export import export, samples_of, timed_sentences
from evals.scoring.folder import RunClip
from tests.evals.runs.stand import clip, watch
from tests.fakes.engine import FakeEngine, Seen


def row(tick: int, text: str = "", at_s: float | None = None) -> dict:
    return {"tick": tick, "media_time_s": float(tick) if at_s is None else at_s, "text": text}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog. It barks!", ["A dog.", "It barks!"]),
        ("No end", ["No end"]),
        ("Version 1.5 is out. Wow", ["Version 1.5 is out.", "Wow"]),
        ("红色的圆。出现了！", ["红色的圆。", "出现了！"]),
        ("  ", []),
        ("Two\nlines. Here", ["Two\nlines.", "Here"]),
        ("What?! Yes...", ["What?!", "Yes..."]),
    ],
)
def test_sentences_have_the_media_time_of_their_frame(text: str, sentences: list[str]) -> None:
    told = list(timed_sentences([[(2.0, text)]]))
    assert [each["sentence"] for each in told] == sentences
    assert all((each["start"], each["end"]) == (2.0, 2.0) for each in told)


def test_each_query_that_waits_for_events_is_a_sample_with_what_was_said_while_it_stood() -> None:
    queries = [
        {"id": "a", "at_s": 0, "text": "Tell me when a dog comes."},
        {"id": "b", "at_s": 10, "text": "How many?"},
        {"id": "c", "at_s": 15, "text": "Every bird, please.", "until_s": 25},
    ]
    slots = [
        {"id": "1", "query": "a", "kind": "alert", "start_s": 4, "end_s": 9, "accepted": ["dog"]},
        {"id": "2", "query": "b", "kind": "count", "start_s": 10, "end_s": 14},
        {"id": "3", "query": "c", "kind": "repeat", "start_s": 16, "end_s": 18},
        {"id": "4", "query": "c", "kind": "repeat", "start_s": 20, "end_s": 22},
    ]
    rows = [row(4, "A dog."), row(11, "Two."), row(16, "A bird."), row(20), row(26, "Late.")]
    one = RunClip(clip("one", 30, queries=queries, slots=slots), "complete", rows, {})
    found = list(samples_of(one))
    assert [(s.id, s.split) for s in found] == [
        ("one.a", "PR_event_reminder"),
        ("one.c", "PR_event_reminder"),
    ]
    assert found[0].said == [[(4.0, "A dog.")]] and found[1].said == [[(16.0, "A bird.")]]
    assert found[0].row["reminder1"] == 4 and found[0].row["answer1"] == "dog"
    assert (found[1].row["reminder1"], found[1].row["reminder2"]) == (16, 20)


async def test_a_runs_artifact_lies_where_the_scorer_looks_for_it(tmp_path: Path) -> None:
    def script(seen: Seen) -> str:
        return "</response> A dog. It barks." if seen.tick == 3 else "</silence>"

    rows = [
        {"id": "7", "split": "RTD_OCR", "video": "a.mp4", "question_text": "Read.", "video_duration": 6},
        {
            "id": "x 1",
            "split": "PR_event_reminder",
            "video": "b.mp4",
            "question_text": "Say when.",
            "reminder1": 2.0,
            "answer1": "Now",
            "video_duration": 6,
        },
    ]
    source = tmp_path / "samples.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in rows))
    clips = open_dataset(source).clips
    async with FakeEngine(script) as engine:
        await watch(tmp_path / "run", engine, clips)
    exported = export(tmp_path / "run", tmp_path / "out")
    assert (exported.samples, exported.left_out) == (2, 0)
    responses = tmp_path / "out" / "responses"
    told = json.loads((responses / "RTD_OCR" / "7.json").read_text())
    assert [each["sentence"] for each in told] == ["A dog.", "It barks."]
    meta = json.loads((responses / "RTD_OCR" / "7.meta.json").read_text())
    assert (meta["clock"], meta["fps"], meta["unit_ms"], meta["response_done"]) == (
        "invalid",
        1.0,
        1000,
        True,
    )
    again = [json.loads(line) for line in (tmp_path / "out" / "dataset.jsonl").read_text().splitlines()]
    assert [each["split"] for each in again] == ["PR_event_reminder", "RTD_OCR"]
    assert (again[0]["reminder1"], again[0]["answer1"]) == (2.0, "Now")
