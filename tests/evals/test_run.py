"""The loop: order, pace, queries at their time, and whole files however a run ends."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evals.replay.console import RunConsole, harmless, print_outcome
from evals.replay.folder import RunFolder, read_rows
from evals.replay.options import Pace, Query, ReplayError, ReplayOptions
from evals.replay.run import Ending, replay
from evals.stats import COLUMNS
from orchestrator.exits import Exit
from tests.evals.drives import SAMPLING, ListSource, ScriptedDrive, StepClock

SECONDS = [0, 1000, 2000, 3000, 4000]


class Run:
    """One replay over scripted parts, with all that came of it."""

    def __init__(self, out: Path, source: ListSource, drive: ScriptedDrive, **options: Any) -> None:
        self.out = out
        self.source, self.drive, self.clock = source, drive, StepClock()
        self.options = ReplayOptions("list.mp4", out, **({"pace": Pace.FAST} | options))
        self.printed = io.StringIO()
        self.ending = Ending(asyncio.Event())
        self.summary: dict[str, Any] = {}

    async def go(self) -> Run:
        console = Console(file=self.printed, width=80)
        with RunFolder(self.out) as folder, RunConsole(console, len(self.source.times)) as view:
            self.summary = await replay(
                self.options, self.source, self.drive, folder, view, self.clock, self.ending, SAMPLING
            )
        print_outcome(console, self.summary, str(self.out))
        return self

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in read_rows(self.out / "decisions.jsonl")]


async def test_every_frame_gives_a_row_with_all_columns_in_order(tmp_path):
    run = await Run(tmp_path, ListSource(SECONDS), ScriptedDrive()).go()
    lines = (tmp_path / "decisions.jsonl").read_text().splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(COLUMNS)] * 5
    assert [row["media_time_s"] for row in run.rows] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert run.ending.exit_code is Exit.OK
    assert run.drive.closed == 1
    assert json.loads((tmp_path / "summary.json").read_text()) == run.summary
    assert run.summary["frames"] == {"sent": 5, "dropped": 0}
    assert run.summary["warnings"] == ["small cache"]
    assert "<title>Replay of list.mp4</title>" in (tmp_path / "report.html").read_text()


async def test_queries_are_asked_just_before_the_first_frame_of_their_time(tmp_path):
    queries = [Query(2.5, "late"), Query(0.0, "first"), Query(99.0, "never")]
    run = await Run(tmp_path, ListSource(SECONDS), ScriptedDrive(), queries=queries).go()
    assert run.drive.seen[:2] == [("ask", "first"), ("frame", 0)]
    assert run.drive.seen[4:6] == [("ask", "late"), ("frame", 3000)]
    assert ("ask", "never") not in run.drive.seen


async def test_a_query_is_withdrawn_just_before_the_first_frame_of_that_time(tmp_path):
    queries = [Query(0.0, "first"), Query(1.5, None)]
    run = await Run(tmp_path, ListSource(SECONDS), ScriptedDrive(), queries=queries).go()
    assert run.drive.seen[:4] == [("ask", "first"), ("frame", 0), ("frame", 1000), ("withdraw", None)]
    assert "Withdrawn at 0:01.5" in (tmp_path / "report.html").read_text()


async def test_max_ticks_ends_the_run_cleanly(tmp_path):
    run = await Run(tmp_path, ListSource(SECONDS), ScriptedDrive(), max_ticks=2).go()
    assert len(run.rows) == 2
    assert (run.ending.outcome, run.ending.exit_code) == ("complete", Exit.OK)


async def test_realtime_waits_for_each_frames_time_and_never_drops_one(tmp_path):
    drive = ScriptedDrive()
    run = Run(tmp_path, ListSource(SECONDS), drive, pace=Pace.REALTIME)

    async def slow_second_tick(tick: int) -> None:
        if tick == 1:
            run.clock.time += 2.5

    drive.before_tick = slow_second_tick
    await run.go()
    # Frame 1 is due after 1 s; frames 2 and 3 are already late when it is decided; frame 4 is due in 0.5 s.
    assert run.clock.slept == [1.0, 0.5]
    assert len(run.rows) == 5


async def test_fast_never_sleeps(tmp_path):
    run = await Run(tmp_path, ListSource(SECONDS), ScriptedDrive()).go()
    assert run.clock.slept == []


async def test_a_failing_session_leaves_whole_files_and_its_code(tmp_path):
    drive = ScriptedDrive()
    drive.fails_at = (3, ReplayError(Exit.ENGINE_UNREACHABLE, "engine_unreachable", "nobody answers"))
    run = await Run(tmp_path, ListSource(SECONDS), drive).go()
    assert len(run.rows) == 3
    assert run.ending.exit_code is Exit.ENGINE_UNREACHABLE
    assert run.summary["outcome"] == "failed"
    assert run.summary["error"] == {"code": "engine_unreachable", "message": "nobody answers"}
    assert "nobody answers" in (tmp_path / "report.html").read_text()
    assert drive.closed == 1


async def test_frames_before_a_decode_fault_are_all_replayed(tmp_path):
    fault = ReplayError(Exit.FAILED, "source_broken", "the file ends in the middle of a picture")
    run = await Run(tmp_path, ListSource(SECONDS, fault=fault), ScriptedDrive()).go()
    assert len(run.rows) == 5
    assert run.ending.error is fault
    assert "the file is cut short" in run.summary["warnings"]


async def test_an_unexpected_fault_is_raised_but_the_files_are_whole(tmp_path):
    drive = ScriptedDrive(lambda tick: {} if tick < 2 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await Run(tmp_path, ListSource(SECONDS), drive).go()
    assert len(read_rows(tmp_path / "decisions.jsonl")) == 2
    assert json.loads((tmp_path / "summary.json").read_text())["ticks"] == 2
    assert drive.closed == 1


async def test_a_stop_in_the_middle_of_a_tick_leaves_whole_files(tmp_path):
    drive = ScriptedDrive()
    run = Run(tmp_path, ListSource(SECONDS), drive)

    async def stop_at_two(tick: int) -> None:
        if tick == 2:
            run.ending.stop.set()
            await asyncio.Event().wait()

    drive.before_tick = stop_at_two
    await run.go()
    assert (run.ending.exit_code, run.summary["outcome"]) == (Exit.INTERRUPTED, "interrupted")
    assert len(run.rows) == 2
    assert drive.closed == 1


async def test_frames_of_a_file_are_lossless_and_those_of_a_stream_are_not(tmp_path):
    drive = ScriptedDrive()
    shown: list[bool] = []
    plain = drive.show

    async def show(frame, *, lossless):
        shown.append(lossless)
        await plain(frame, lossless=lossless)

    drive.show = show  # type: ignore[method-assign]
    await Run(tmp_path / "a", ListSource([0]), drive).go()
    await Run(tmp_path / "b", ListSource([0], live=True), drive).go()
    assert shown == [True, False]


def test_files_of_an_earlier_run_are_replaced(tmp_path):
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "decisions.jsonl").write_text("old")
    with RunFolder(tmp_path) as folder:
        folder.add({"tick": 0}, b"no picture")
        assert not (tmp_path / "report.html").exists()
        # Readable while the run goes on: what a kill would leave.
        assert [row["tick"] for row in read_rows(tmp_path / "decisions.jsonl")] == [0]


async def test_responses_are_printed_as_they_stream_where_there_is_no_terminal(tmp_path):
    script = {1: {"action": "response", "reason": None, "text": "A red car."}}
    script[2] = {"action": "delegate", "reason": None, "text": "", "question": "Which \x1b[31mcar?"}
    script[3] = {"status": "failed", "reason": "engine_timeout"}
    run = await Run(tmp_path, ListSource(SECONDS), ScriptedDrive(lambda t: script.get(t, {}))).go()
    lines = run.printed.getvalue().splitlines()
    assert lines[0].rstrip() == "[0:01.0] A red car."
    assert lines[1] == "[0:02.0] delegated: Which \N{REPLACEMENT CHARACTER}[31mcar?"
    assert lines[2] == "[0:03.0] tick 3 failed: engine_timeout"
    assert lines[3].startswith("5 ticks: 1 responses, 1 delegated")
    assert "\x1b" not in run.printed.getvalue()


async def test_a_run_in_which_nothing_was_asked_says_what_to_give(tmp_path):
    gated = {"reason": "gated"}
    for script, hinted in (({}, True), ({0: {"reason": "model"}}, False)):
        drive = ScriptedDrive(lambda t, s=script: s.get(t, gated))
        run = await Run(tmp_path, ListSource(SECONDS), drive).go()
        assert ("give --query" in run.printed.getvalue()) is hinted


def test_a_terminal_shows_a_bar_and_keeps_what_was_said():
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, color_system=None)
    with RunConsole(console, 3) as view:
        view.frame(7.0)
        view.delta("Two people ")
        view.delta("meet.\x07")
        view.tick({"tick": 0, "media_time_s": 7.0, "action": "response", "text": "Two people meet."})
        view.notice("engine_lost", "waiting")
    shown = screen.getvalue()
    assert "[0:07.0] Two people meet." in shown
    assert "[engine_lost] waiting" in shown
    assert "1/3" in shown


def test_model_text_cannot_steer_a_terminal():
    assert harmless("a\x1b[2Jb\x9bc\u202ed\ne\r\nf") == "a�[2Jb�c�d\ne\nf"
