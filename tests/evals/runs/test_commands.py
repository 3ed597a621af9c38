"""The commands of ``vigil eval`` that run things, as processes of their own over real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from evals.readers.jsonl import write_clips
from evals.scenes.datasets import Recipe
from tests.fakes.engine import FakeEngine, Seen

pytestmark = pytest.mark.timeout(300)

RECIPE = Recipe("short", 9000, 2, 0.5, ("alert", "count"), chunk_s=10.0)
SETTINGS = ("--family", "joyvl", "--memory-chunk-frames", "10", "--memory-overlap-frames", "2")


def speaks(seen: Seen) -> str:
    return "</response> A red circle appears." if len(seen.images) % 7 == 5 else "</silence>"


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    path = tmp_path / "scenes.jsonl"
    write_clips(path, RECIPE.clips())
    return path


async def start(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "orchestrator.cli",
        "eval",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def vigil(*arguments: object) -> tuple[int, str]:
    process = await start(*arguments)
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_from_scenes_to_a_page(tmp_path: Path, scenes: Path) -> None:
    run = tmp_path / "run"
    async with FakeEngine(speaks, bytes_per_token=2) as engine:
        code, said = await vigil("run", scenes, "--engine", engine.url, "--out", run, *SETTINGS)
        assert code == 0, said
        assert "2 clips watched, 0 finished before, 0 failed" in said
        code, said = await vigil("run", scenes, "--engine", engine.url, "--out", run, *SETTINGS)
        assert (code, "0 clips watched, 2 finished before" in said) == (0, True), said
        code, said = await vigil("run", scenes, "--engine", engine.url, "--out", run, "--family", "joyvl")
        assert code == 2 and "settings.memory.chunk_frames" in said
        assert (await vigil("score", run))[0] == 0
        code, said = await vigil("audit", run, "--engine", engine.url, "--family", "joyvl", "--limit", 5)
        assert "decisions looked at" in said and " 0 otherwise" in said, said
    code, said = await vigil("rerun", "--from", run)
    assert code == 0 and said.count("the same, bit for bit") == 2, said
    code, said = await vigil("report", run)
    assert (code, said.strip()) == (0, str(run / "report.html"))
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    code, said = await vigil("export", run, "--out", tmp_path / "out")
    assert code == 0 and "samples in" in said
    code, said = await vigil("rerun", "--from", tmp_path / "none")
    assert code == 2 and "holds no run" in said


async def test_a_sweep_runs_each_point_and_says_what_changed(tmp_path: Path, scenes: Path) -> None:
    out = tmp_path / "sweep"
    vary = ("--vary", "memory.keep=all,nothing", "--limit", 1)
    async with FakeEngine(speaks) as engine:
        code, said = await vigil("sweep", scenes, "--engine", engine.url, "--out", out, *vary, *SETTINGS)
    assert code == 0, said
    assert sorted(p.name for p in out.iterdir()) == ["comparison.json", "keep=all", "keep=nothing"]
    assert "memory.keep" in said and "keep=nothing" in said
    compared = json.loads((out / "comparison.json").read_text())
    assert compared["settings"]["memory.keep"] == {"keep=all": "all", "keep=nothing": "nothing"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
async def test_a_run_that_is_ended_in_the_middle_goes_on(
    tmp_path: Path, scenes: Path, number: signal.Signals, code: int
) -> None:
    """In order, or killed: the clip that was finished stays, the other one is watched once more."""
    run, ending = tmp_path / "run", asyncio.Event()

    def after_the_first(seen: Seen) -> str:
        if (run / "clips" / first / "record.json").exists():
            ending.set()
        return speaks(seen)

    first = next(RECIPE.clips()).id
    async with FakeEngine(after_the_first) as engine:
        wanted = ("run", scenes, "--engine", engine.url, "--out", run, "--streams", 1, *SETTINGS)
        process = await start(*wanted)
        reading = asyncio.create_task(process.communicate())
        async with asyncio.timeout(120):
            await ending.wait()
        process.send_signal(number)
        await reading
        assert process.returncode == code
        assert json.loads((run / "run.json").read_text())["outcome"] != "complete"
        before = (run / "clips" / first / "tape.jsonl").read_bytes()
        returned, said = await vigil(*wanted)
    assert returned == 0 and "1 clips watched, 1 finished before" in said, said
    assert (run / "clips" / first / "tape.jsonl").read_bytes() == before
    assert json.loads((run / "run.json").read_text())["outcome"] == "complete"


async def test_an_engine_that_is_not_there_is_told(tmp_path: Path, scenes: Path) -> None:
    code, said = await vigil("run", scenes, "--engine", "http://127.0.0.1:9", "--out", tmp_path / "run")
    assert code == 5 and "127.0.0.1:9" in said
    assert not (tmp_path / "run").exists()
