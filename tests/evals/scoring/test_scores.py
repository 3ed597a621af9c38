"""``vigil eval score``: a run is scored from its folder alone, at any time, with the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from evals.readers.clip import Clip, Expected, Judging, Query, Speech
from evals.readers.jsonl import write_clips
from evals.scoring.folder import UnusableRun, read_run
from orchestrator.cli import app
from tests.evals.metrics.made import response
from tests.evals.scoring.runs import BAD, GOOD, clip, rows, write_run
from tests.fakes.solver import FakeSolver


def vigil(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, arguments)], env={"TERM": "dumb"})


def scored(run: Path, *arguments: str) -> dict[str, Any]:
    result = vigil("score", run, *arguments)
    assert result.exit_code == 0, result.output
    scores: dict[str, Any] = orjson.loads((run / "scores.json").read_bytes())
    return scores


def free(one: Clip) -> Clip:
    """The clip with its answers for a judge."""
    slots = tuple(s.model_copy(update={"judging": Judging.JUDGE}) if s.id == "s2" else s for s in one.slots)
    return one.model_copy(update={"slots": slots})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    clips = [(clip(f"c{n}"), rows(60, GOOD if n else BAD)) for n in range(4)]
    return write_run(tmp_path / "run", clips, {"memory": {"overlap_frames": 10}}, {"c3": "failed"})


def test_a_run_is_scored_and_shown(run: Path) -> None:
    scores = scored(run)
    assert scores["counts"] == {
        "clips": 4,
        "outcomes": {"complete": 3, "failed": 1},
        "not_begun": 0,
        "slots": 9,
        "unreached": 0,
        "unjudged": 0,
        "judge_cases_open": 0,
        "said": 11,
        "watched_s": 180.0,
    }
    figures = scores["groups"]["all"]
    assert figures["accuracy"]["value"] == pytest.approx(6 / 9)
    assert figures["accuracy"]["low"] < 6 / 9 < figures["accuracy"]["high"]
    assert figures["memory"] == scores["groups"]["skill:first"]["memory"]
    assert scores["groups"]["memory:2"]["memory"] == figures["memory"]
    assert scores["groups"]["kind:delegate"]["delegation_recall"]["value"] == pytest.approx(2 / 3)
    assert scores["cost"]["sums"]["prefilled_tokens"] == 18000
    assert scores["clips"]["c3"] == {"outcome": "failed"}
    text = vigil("score", run).output
    for words in (
        "onset F1 at 1 s",
        "By skill",
        "Cost of decisions",
        "4 clips (3 complete, 1 failed), 9 slots",
    ):
        assert words in text


def test_every_wrong_decision_is_listed_with_the_ticks_to_ask_again(run: Path) -> None:
    wrong = {(w["why"], w["tick"]): w for w in scored(run)["wrong"] if w["clip"] == "c0"}
    assert sorted(wrong) == [
        ("false_alert", 5),
        ("false_alert", 30),
        ("false_alert", 31),
        ("missed", 17),
        ("not_delegated", 56),
        ("wrong_answer", 46),
    ]
    assert wrong["missed", 17]["ticks"] == [12, 13, 14, 15, 16, 17]
    assert wrong["wrong_answer", 46]["wanted"] == "red square"
    assert (wrong["false_alert", 5]["query"], wrong["false_alert", 5]["wanted"]) == ("q1", "silence")


def test_scoring_again_changes_nothing(run: Path) -> None:
    scored(run)
    before = (run / "scores.json").read_bytes()
    scored(run)
    assert (run / "scores.json").read_bytes() == before


def test_json_is_the_file(run: Path) -> None:
    result = vigil("score", run, "--format", "json")
    assert orjson.loads(result.stdout) == orjson.loads((run / "scores.json").read_bytes())


def test_markdown_is_made_of_tables(run: Path) -> None:
    assert "| onset F1 at 1 s |" in vigil("score", run, "--format", "markdown").output


async def test_a_judge_is_asked_once_and_its_verdicts_stay(tmp_path: Path) -> None:
    import asyncio

    run = write_run(tmp_path / "run", [(free(clip("c1")), rows(60, GOOD)), (free(clip("c2")), rows(60, BAD))])
    unjudged = await asyncio.to_thread(scored, run)
    assert (unjudged["counts"]["unjudged"], unjudged["judge"]) == (2, None)

    def verdict(asked: Any) -> str:
        return '{"right": true}' if "A red square." in asked.text else '{"right": false}'

    async with FakeSolver(verdict) as solver:
        flags = ("--judge", solver.url, "--judge-model", "m")
        judged = await asyncio.to_thread(scored, run, *flags)
        await asyncio.to_thread(scored, run, *flags)
        assert len(solver.asked) == 2
    assert judged["judge"]["asked"] == 2
    assert judged["judge"]["temperature"] == 0 and "{case}" in judged["judge"]["prompt"]
    assert judged["groups"]["skill:first"]["accuracy"]["value"] == 0.5
    # Without the endpoint, what it said is still known.
    later = await asyncio.to_thread(scored, run)
    assert later["groups"] == judged["groups"]
    assert later["judge"]["model"] == "m"


async def test_a_failing_judge_is_told(tmp_path: Path) -> None:
    import asyncio

    run = write_run(tmp_path / "run", [(free(clip("c1")), rows(60, GOOD))])
    async with FakeSolver(["No idea."]) as solver:
        flags = ("--judge", solver.url, "--judge-model", "m")
        result = await asyncio.to_thread(vigil, "score", run, *flags)
    assert result.exit_code == 1
    assert "the judge failed 1 times: unreadable" in result.output


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    result = vigil("score", tmp_path)
    assert result.exit_code == 2
    assert "holds no run" in result.output
    run = write_run(tmp_path / "run", [(clip(), rows(60, GOOD))])
    assert vigil("score", run, "--judge", "http://x").exit_code == 2
    (run / "clips" / "c1" / "clip.json").write_bytes(b'{"id": "c1"}')
    with pytest.raises(UnusableRun, match=r"c1/clip\.json: a clip has a video or a scene"):
        read_run(run)
    assert vigil("score", write_run(tmp_path / "empty", [])).exit_code == 2


def test_a_clip_that_never_ended_is_not_judged(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [(clip("c1"), rows(60, GOOD)), (clip("c2"), rows(9, {}))])
    (run / "clips" / "c2" / "summary.json").unlink()
    (run / "clips" / "c1" / "summary.json").unlink()
    (run / "clips" / "c1" / "decisions.jsonl").unlink()
    assert [(one.clip.id, one.outcome) for one in read_run(run).clips] == [
        ("c1", "missing"),
        ("c2", "interrupted"),
    ]
    assert scored(run)["groups"] == {}


def test_a_single_replay_is_scored_once_its_truth_is_told(tmp_path: Path) -> None:
    replay = tmp_path / "replay"
    replay.mkdir()
    (replay / "decisions.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows(60, GOOD)))
    (replay / "summary.json").write_bytes(b'{"outcome": "complete"}')
    assert "name the clip with --truth" in vigil("score", replay).output
    truth = tmp_path / "truth.jsonl"
    write_clips(truth, [clip("c1"), clip("c2")])
    assert "holds 2 clips" in vigil("score", replay, "--truth", truth).output
    write_clips(truth, [clip()])
    assert scored(replay, "--truth", str(truth))["groups"]["all"]["accuracy"]["value"] == 1
    assert scored(replay)["counts"]["outcomes"] == {"complete": 1}
    run = write_run(tmp_path / "run", [(clip(), rows(60, GOOD))])
    assert "is no folder of a vigil replay" in vigil("score", run, "--truth", truth).output


@pytest.mark.parametrize(("ok", "outcome"), [(True, "complete"), (False, "failed")])
def test_a_replay_of_recordings_tells_by_its_session_row_how_it_ended(
    tmp_path: Path, ok: bool, outcome: str
) -> None:
    said = [response("a", 2.9, 2500), {"kind": "session", "ok": ok}]
    (tmp_path / "decisions.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in said))
    write_clips(tmp_path / "clip.json", [Clip(id="c", scene={}, queries=(Query(id="q", text="Talk."),))])
    assert [one.outcome for one in read_run(tmp_path).clips] == [outcome]


def test_a_run_with_sound_shows_its_barge_ins_and_timings(tmp_path: Path) -> None:
    said = [
        {"kind": "unit", "unit": n, "start_ms": n * 1000, "end_ms": (n + 1) * 1000, "decision": "listen"}
        for n in range(20)
    ]
    said.append(response("a", 2.9, 2500, made_ms=9000, status="cancelled"))
    speaks = Speech(id="stop", start_s=5.0, end_s=6.0, expects=Expected.STOP)
    heard = Clip(id="c", scene={}, queries=(Query(id="q", text="Talk."),), speech=(speaks,))
    run = write_run(tmp_path / "run", [(heard, said)])
    scores = scored(run)
    assert scores["counts"]["watched_s"] == 20
    assert scores["sound"]["barge_in"]["in_time"] == 1
    text = vigil("score", run).output
    assert "barge-ins stopped in time" in text and "1 of 1" in text
