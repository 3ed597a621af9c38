"""Whole replays through the real session core, against the scripted engine over a real socket."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evals.clips import clip
from evals.replay.console import RunConsole
from evals.replay.core import engine_of, settings_of
from evals.replay.folder import RunFolder, read_rows
from evals.replay.in_process import InProcessDrive
from evals.replay.options import Pace, Query, ReplayError, ReplayOptions
from evals.replay.run import Ending, replay
from evals.replay.source import Source, Video
from evals.stats import COLUMNS
from orchestrator.exits import Exit
from orchestrator.runtime.clock import SystemClock
from tests.evals.drives import ListSource
from tests.fakes.engine import GENERATE, FakeEngine, Seen
from tests.fakes.solver import FakeSolver

NUMBER = (int, float)
TYPES: dict[str, tuple[type, ...]] = {
    "tick": (int,),
    "engine": (str,),
    "media_time_s": NUMBER,
    "action": (str,),
    "reason": (str, type(None)),
    "text": (str,),
    "question": (str, type(None)),
    "frames": (int,),
    "window_frames": (int,),
    "chunk": (int,),
    "window": (int,),
    "prompt_tokens": (int,),
    "cached_tokens": (int,),
    "expected_cached_tokens": (int,),
    "shortfall": (str, type(None)),
    "completion_tokens": (int,),
    "latency_ms": NUMBER,
    "ttft_ms": NUMBER,
    "body_bytes": (int,),
    "retries": (int,),
    "path": (str,),
    "path_fallback": (str, type(None)),
    "score": (float, type(None)),
    "status": (str,),
    "response_id": (str, type(None)),
    "operations": (list,),
}


def script(seen: Seen) -> str:
    if seen.tick % 5 == 3:
        return f"</response> Sight {seen.tick}."
    return "</response> Wait </delegation> What is it?" if seen.tick == 7 else "</silence>"


class Run:
    """One replay against a scripted engine, with all that came of it."""

    def __init__(self, fake: FakeEngine, out: Path, source: Source, **options: Any) -> None:
        self.out, self.source = out, source
        queries = [Query(0.0, "What happens?")]
        values = {"pace": Pace.FAST, "family": "joyvl", "engine": fake.url, "queries": queries, "seed": 1}
        self.options = ReplayOptions("clip.mp4", out, **(values | options))
        self.ending = Ending(asyncio.Event())
        self.printed = io.StringIO()
        self.summary: dict[str, Any] = {}

    async def go(self) -> Run:
        settings = settings_of(self.options)
        engine = engine_of(settings, lambda line: None)
        # Blocks on requests that the scripted engine answers in this very loop.
        running = await asyncio.to_thread(engine.__enter__)
        drive = InProcessDrive(settings, running)
        try:
            sampling = await drive.prepare()
            with RunFolder(self.out) as folder, RunConsole(Console(file=self.printed), None) as view:
                self.summary = await replay(
                    self.options, self.source, drive, folder, view, SystemClock(), self.ending, sampling
                )
        finally:
            await drive.close()
            engine.__exit__(None, None, None)
        return self

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in read_rows(self.out / "decisions.jsonl")]


async def test_a_real_clip_is_decided_frame_by_frame(tmp_path):
    async with FakeEngine(script) as engine:
        run = await Run(engine, tmp_path, Video(str(clip("bikes.mp4")))).go()
    rows = run.rows
    assert run.ending.exit_code is Exit.OK
    assert all(list(row) == list(COLUMNS) for row in rows)
    for row in rows:
        assert {name: type(row[name]) for name in COLUMNS if not isinstance(row[name], TYPES[name])} == {}
    assert [row["tick"] for row in rows] == sorted({row["tick"] for row in rows})
    assert [row["media_time_s"] for row in rows if row["frames"]] == [float(n) for n in range(10)]
    assert sum(row["frames"] for row in rows) == run.summary["frames"]["sent"] == 10
    assert {row["action"] for row in rows} == {"silence", "response", "delegate"}
    delegated = next(row for row in rows if row["action"] == "delegate")
    assert (delegated["text"], delegated["question"]) == ("Wait", "What is it?")
    assert run.summary["audit"]["kept_percent"] == 100.0
    assert run.summary["engine"]["model"] == engine.model
    assert run.summary["error"] is None
    assert "Sight 3." in run.printed.getvalue()
    assert "Sight 3." in (tmp_path / "report.html").read_text()


async def test_where_the_self_check_finds_a_way_prompts_go_as_ids(tmp_path):
    async with FakeEngine(
        lambda seen: script(seen) if seen.session else "</silence>",
        tags=("</silence>", "</response>", "</delegation>"),
        image_tokens=16,
        token_route=True,
    ) as engine:
        run = await Run(engine, tmp_path, Video(str(clip("bikes.mp4")))).go()
        sent = [seen for seen in engine.asked if seen.kind == "decide" and seen.session]
    asked = [row for row in run.rows if row["path"]]
    assert [row["path"] for row in asked] == ["payloads"] + ["content_parts"] * (len(asked) - 1)
    assert {row["path_fallback"] for row in run.rows} == {None}
    assert [seen.path for seen in sent] == ["/v1/chat/completions"] + [GENERATE] * (len(sent) - 1)
    assert run.summary["audit"]["kept_percent"] == 100.0
    assert run.summary["engine"]["tokens"]["kind"] == "content_parts"
    assert any(row["score"] is not None for row in run.rows), "logprobs come by text and are found"


async def test_an_engine_that_dies_in_the_middle_costs_time_but_no_frame(tmp_path):
    """Kill the engine mid-run and start it again: the file waits, nothing is lost, doubled or said twice."""
    times = [1000 * n for n in range(12)]
    async with FakeEngine(script) as engine:

        async def kill_and_restart(n: int) -> None:
            if n == 6:
                engine.kill()
                restarting.append(asyncio.create_task(engine.restart()))

        restarting: list[asyncio.Task[None]] = []
        run = await Run(engine, tmp_path, Watched(times, kill_and_restart)).go()
        await asyncio.gather(*restarting)
    rows = run.rows
    assert run.ending.exit_code is Exit.OK
    answered = [row for row in rows if row["status"] == "completed"]
    assert sum(row["frames"] for row in answered) == 12
    assert [row["media_time_s"] for row in answered if row["frames"]] == [t / 1000 for t in times]
    spoken = [row["text"] for row in answered if row["text"]]
    assert len(spoken) == len(set(spoken))


async def test_a_stop_during_a_decision_ends_the_session_and_keeps_what_was_decided(tmp_path):
    async with FakeEngine(script) as engine:

        async def stop(n: int) -> None:
            if n == 4:
                run.ending.stop.set()

        run = Run(engine, tmp_path, Watched([1000 * n for n in range(9)], stop))
        await run.go()
    assert run.ending.exit_code is Exit.INTERRUPTED
    assert 3 <= sum(row["frames"] for row in run.rows) <= 5  # the fifth was on its way
    assert run.summary["ticks"] == len(run.rows)
    assert (tmp_path / "report.html").exists()


async def test_a_gated_session_decides_nothing_until_its_first_query(tmp_path):
    async with FakeEngine(script) as engine:
        times = [1000 * n for n in range(6)]
        run = await Run(engine, tmp_path, ListSource(times), queries=[Query(3.0, "Now?")]).go()
    framed = [row for row in run.rows if row["frames"]]
    assert [row["reason"] for row in framed[:3]] == ["gated"] * 3
    assert "gated" not in [row["reason"] for row in framed[3:]]
    assert run.summary["reasons"]["gated"] == 3


async def test_a_withdrawn_query_is_shown_as_such(tmp_path):
    async with FakeEngine(script) as engine:
        queries = [Query(0.0, "Any birds?"), Query(2.0, None)]
        await Run(engine, tmp_path, ListSource([0, 1000, 2000]), queries=queries).go()
        said = str(engine.chats[-1].messages[-1])
    assert "The user withdrew the query" in said


@pytest.mark.parametrize(
    ("options", "exit_code", "says"),
    [
        ({"model": "other"}, Exit.MODEL_MISSING, "other"),
        ({"engine": "http://127.0.0.1:9"}, Exit.ENGINE_UNREACHABLE, "127.0.0.1:9"),
        ({"persona": "pirate"}, Exit.USAGE, "pirate"),
        ({"language": "xx"}, Exit.USAGE, "xx"),
        ({"family": "nobody"}, Exit.USAGE, "nobody"),
    ],
)
async def test_what_cannot_start_says_why(tmp_path, options, exit_code, says):
    async with FakeEngine(script) as engine:
        with pytest.raises(ReplayError, match=says) as caught:
            await Run(engine, tmp_path / "out", ListSource([0]), **options).go()
    assert caught.value.exit_code is exit_code
    assert not (tmp_path / "out").exists()


async def test_a_question_is_answered_by_the_solver_even_at_the_end_of_a_file(tmp_path):
    """The last frame's question: the run waits for its answer and for the tick that shows it to the model."""

    def delegating(seen: Seen) -> str:
        return "</response> Wait </delegation> What is it?" if seen.tick == 3 else "</silence>"

    async with FakeEngine(delegating) as engine, FakeSolver(["A heron."]) as solver:
        solver.hold()
        options = {"solver": solver.url, "solver_model": solver.model}
        running = asyncio.create_task(
            Run(engine, tmp_path, ListSource([0, 1000, 2000, 3000]), **options).go()
        )
        await solver.until(lambda: len(solver.asked) == 1)
        solver.let_go()
        run = await running
        assert "What is it?" in solver.asked[0].text
        assert solver.asked[0].images == []
        assert "A heron." in str(engine.chats[-1].messages[-1])
    assert run.summary["warnings"] == ["delegation_completed: What is it?: A heron."]
    assert "A heron." in run.printed.getvalue()
    assert run.rows[-1]["frames"] == 0


async def test_a_run_without_a_solver_says_nothing_of_its_questions(tmp_path):
    async with FakeEngine(["</response> Wait </delegation> What is it?"]) as engine:
        run = await Run(engine, tmp_path, ListSource([0, 1000])).go()
    assert run.summary["warnings"] == []
    assert run.rows[0]["question"] == "What is it?"


class Watched(ListSource):
    """Calls ``before`` with the number of each frame before it is delivered."""

    def __init__(self, times: list[int], before: Callable[[int], Any]) -> None:
        super().__init__(times)
        self.before = before

    async def frames(self, sampling):
        n = 0
        async for frame in super().frames(sampling):
            await self.before(n)
            n += 1
            yield frame
