"""Runs that were cut short, damaged, gone on with or fought over: told in a line that says what to do, and
never counted as what they are not."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from evals.replay.folder import BadRow, read_rows
from evals.runs import clips as clip_files
from evals.runs.lock import alone_in
from evals.runs.manifest import RunError
from evals.runs.reporting import report
from evals.runs.rerun import rerun
from evals.runs.tape_reader import TapeError, read_tape
from evals.scoring.folder import UnusableRun, read_run, read_scores, write_scores
from evals.scoring.judge import VerdictFile
from evals.scoring.scores import scores_of
from tests.evals.runs.stand import Quiet, clip, script, watch
from tests.evals.runs.test_commands import vigil
from tests.evals.scoring.runs import GOOD, manifest, rows, write_run
from tests.evals.scoring.runs import clip as made_up
from tests.fakes.engine import FakeEngine


def a_run(path: Path, names: str = "ab") -> Path:
    return write_run(path, [(made_up(name), rows(60, GOOD)) for name in names])


def score(run: Path) -> dict:
    scores = scores_of(read_run(run), {})
    write_scores(run, scores)
    return scores


# --- pieces of lines ----------------------------------------------------------------------------------------


async def test_a_line_that_was_being_written_when_the_run_was_killed_was_never_written(
    tmp_path: Path,
) -> None:
    async with FakeEngine(script) as engine:
        await watch(tmp_path, engine, [clip("one", 4), clip("two", 4)])
    folder = tmp_path / "clips" / "two"
    for name in ("decisions.jsonl", "tape.jsonl"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-9])
    (folder / "summary.json").unlink()
    run = read_run(tmp_path)
    assert {one.clip.id: one.outcome for one in run.clips} == {"one": "complete", "two": "interrupted"}
    assert len(run.clips[1].rows) == len(run.clips[0].rows) - 1
    assert scores_of(run, {})["counts"]["outcomes"] == {"complete": 1, "interrupted": 1}
    assert report(tmp_path).is_file()


@pytest.mark.parametrize("line", [b"{\n", b"[1]\n", b"\xff\xfe\n", b"null\n"])
def test_a_damaged_line_in_the_middle_is_told_with_its_place(tmp_path: Path, line: bytes) -> None:
    run = a_run(tmp_path / "run")
    decisions = run / "clips" / "a" / "decisions.jsonl"
    lines = decisions.read_bytes().splitlines(keepends=True)
    decisions.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(BadRow, match=r"decisions\.jsonl:4"):
        read_rows(decisions)
    with pytest.raises(UnusableRun, match=r"decisions\.jsonl:4"):
        read_run(run)
    tape = tmp_path / "tape.jsonl"
    tape.write_bytes(line)
    with pytest.raises(TapeError, match=r"tape\.jsonl:1"):
        read_tape(tape)


@pytest.mark.parametrize("name", ["run.json", "clips/a/summary.json", "clips/a/clip.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "of another time"}'])
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str, content: str) -> None:
    run = a_run(tmp_path / "run")
    (run / name).write_text(content)
    with pytest.raises(UnusableRun, match=Path(name).name.replace(".", r"\.")):
        read_run(run)


def test_verdicts_that_are_none_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    path.write_text('{"model": "m"}\n[]\nnull\n{"mod')
    assert VerdictFile(path).settings() is None and VerdictFile(path).verdicts() == {}


# --- scores of another time ---------------------------------------------------------------------------------


def test_scores_are_of_the_run_as_it_was_when_it_was_scored(tmp_path: Path) -> None:
    """Whoever looks at a run, lets it go on, and looks again, sees the second one."""
    run = a_run(tmp_path / "run", "a")
    score(run)
    assert read_scores(run)["counts"]["clips"] == 1
    later = a_run(tmp_path / "later", "ab")
    (later / "clips" / "b").rename(run / "clips" / "b")
    with pytest.raises(UnusableRun, match="gone on since it was scored: vigil eval score"):
        read_scores(run)
    fresh = score(run)
    assert read_scores(run) == json.loads(json.dumps(fresh))
    (tmp_path / "alone").mkdir()
    (run / "scores.json").rename(tmp_path / "alone" / "scores.json")
    assert read_scores(tmp_path / "alone")["counts"]["clips"] == 2, "scores alone are all there is to go by"


def test_scores_of_another_version_are_made_again(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run / "scores.json").write_text('{"format": "vigil-scores-1"}')
    with pytest.raises(UnusableRun, match="scored by another version"):
        read_scores(run)


async def test_a_page_is_of_the_run_as_it_is_now(tmp_path: Path) -> None:
    clips, stop, progress = [clip("one", 4), clip("two", 4)], asyncio.Event(), Quiet()
    progress.on_tick = lambda: stop.set() if "one" in progress.summaries else None
    async with FakeEngine(script) as engine:
        await watch(tmp_path, engine, clips, progress=progress, stop=stop, streams=1)
        first = report(tmp_path).read_text()
        assert "was not judged" in first or "was not watched" in first
        await watch(tmp_path, engine, clips)
    second = report(tmp_path).read_text()
    assert "was not judged" not in second and "was not watched" not in second
    assert second.count(" right</span>") + second.count("wrong</b></span>") >= 2


def test_clips_that_nobody_watched_are_counted(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run / "run.json").write_text(json.dumps(manifest(5)))
    assert score(run)["counts"]["not_begun"] == 3


# --- two at one time, and no room ---------------------------------------------------------------------------


async def test_two_runs_never_share_a_folder_at_one_time(tmp_path: Path) -> None:
    async with FakeEngine(script) as engine:
        with alone_in(tmp_path), pytest.raises(RunError, match="another run is at work"):
            await watch(tmp_path, engine, [clip("one", 3)])
        assert (await watch(tmp_path, engine, [clip("one", 3)])).finished == 1
        with pytest.raises(RunError, match=r"settings\.memory\.keep"):
            await watch(tmp_path, engine, [clip("one", 3)], memory={"keep": "nothing"})
        assert (await watch(tmp_path, engine, [clip("one", 3)])).skipped == 1, "a refusal holds nothing"


async def test_a_disk_that_is_full_ends_the_run_in_order_and_it_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    clips = [clip("one", 3), clip("two", 3)]
    async with FakeEngine(script) as engine:
        with monkeypatch.context() as patched:
            patched.setattr(clip_files, "write_json", full)
            outcome = await watch(tmp_path, engine, clips, streams=1)
        assert outcome.full and outcome.finished == 0 and "No space left" in outcome.failed["one"]
        assert json.loads((tmp_path / "run.json").read_text())["outcome"] == "interrupted"
        assert (await watch(tmp_path, engine, clips)).finished == 2


async def test_a_folder_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    async with FakeEngine(script) as engine:
        with pytest.raises(RunError, match="can't write to"):
            await watch(tmp_path / "taken", engine, [clip("one", 3)])
        run = tmp_path / "run"
        await watch(run, engine, [clip("one", 3)])
    (run / "report.html").mkdir()
    code, said = await vigil("report", run)
    assert (code, "Traceback" in said, "report.html" in said) == (1, False, True), said
    (run / "scores.json").unlink()
    (run / "scores.json").mkdir()
    code, said = await vigil("score", run)
    assert (code, "Traceback" in said, "scores.json" in said) == (1, False, True), said
    code, said = await vigil("compare", run, run)
    assert (code, "named twice" in said) == (2, True), said


async def test_a_run_is_never_done_again_over_itself(tmp_path: Path) -> None:
    async with FakeEngine(script) as engine:
        await watch(tmp_path, engine, [clip("one", 3)])
    before = (tmp_path / "clips" / "one" / "tape.jsonl").read_bytes()
    with pytest.raises(RunError, match="the run itself"):
        await rerun(tmp_path, tmp_path / "clips" / "..", lambda name, differ: None)
    assert (tmp_path / "clips" / "one" / "tape.jsonl").read_bytes() == before


def test_a_run_that_was_stopped_before_its_first_clip_is_one_without_clips(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(manifest(3)))
    found = read_run(tmp_path)
    assert (list(found.clips), found.not_begun) == ([], 3)
    assert scores_of(found, {})["counts"]["clips"] == 0
