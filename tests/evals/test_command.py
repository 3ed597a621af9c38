"""The command: flags, exit codes, and whole files when it is interrupted or killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from evals.clips import clip
from evals.replay import command
from evals.replay.options import Query, ReplayOptions
from evals.stats import COLUMNS
from orchestrator.exits import MEANINGS, Exit
from tests.fakes.engine import FakeEngine, Seen

REPO = Path(__file__).parents[2]


@pytest.fixture
def asked(monkeypatch) -> list[ReplayOptions]:
    """Options that reach the run, which is not run."""
    seen: list[ReplayOptions] = []

    def run(options: ReplayOptions) -> Exit:
        seen.append(options)
        return Exit.OK

    monkeypatch.setattr(command, "run", run)
    return seen


def invoke(*args: str):
    app = typer.Typer()
    command.mount(app)
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def test_queries_in_all_their_forms(asked):
    got = invoke(
        "a.mp4",
        "--query",
        "one",
        "--query-at",
        "2.5",
        "later, with spaces",
        "--query",
        "two",
        "--query-at",
        "9",
        "-5",
    )
    assert got.exit_code == 0, got.output
    assert asked[0].queries == [Query(0.0, "one\ntwo"), Query(2.5, "later, with spaces"), Query(9.0, "-5")]


def test_options_reach_the_run(asked):
    engine = ("--engine", "http://e", "--model", "m", "--family", "joyvl")
    solver = ("--solver", "http://s", "--solver-model", "small")
    voice = ("--persona", "silent", "--language", "zh", "--seed", "7", "--threshold", "0.4")
    got = invoke(
        "a.mp4", *engine, *solver, *voice, "--pace", "fast", "--loop", "3", "--max-ticks", "9", "--out", "x"
    )  # fmt: skip
    assert got.exit_code == 0, got.output
    one = asked[0]
    assert (one.source, one.pace.value) == ("a.mp4", "fast")
    assert (one.engine, one.model, one.family) == ("http://e", "m", "joyvl")
    assert (one.solver, one.solver_model) == ("http://s", "small")
    assert (one.persona, one.language, one.seed, one.loop, one.max_ticks) == ("silent", "zh", 7, 3, 9)
    assert (one.threshold, one.out) == (0.4, Path("x"))


def test_a_folder_is_named_after_the_source(asked):
    invoke("rtsp://cam.example/front?x=1")
    assert asked[0].out.parent == Path("vigil-runs")
    assert asked[0].out.name.startswith("front-")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["a.mp4", "--pace", "slow"], "--pace"),
        (["a.mp4", "--query-at", "5"], "SECONDS TEXT"),
        (["a.mp4", "--query-at", "soon", "text"], "soon"),
        (["a.mp4", "--query-at", "-1", "text"], "--query-at"),
        (["a.mp4", "--query-at", "nan", "text"], "--query-at"),
        (["a.mp4", "--query", " "], "empty"),
        (["a.mp4", "--loop", "0"], "--loop"),
        (["a.mp4", "--max-ticks", "0"], "--max-ticks"),
        (["a.mp4", "--threshold", "1"], "--threshold"),
        (["a.mp4", "--seed", "-1"], "--seed"),
        (["a.mp4", "--server", "localhost:8070"], "http://host:port"),
        (["a.mp4", "--server", "http://s", "--engine", "http://e"], "--engine"),
        (["a.mp4", "--server", "http://s", "--threshold", "0.5"], "--threshold"),
        (["a.mp4", "--server", "http://s", "--solver", "http://x", "--solver-model", "m"], "--solver"),
        (["a.mp4", "--solver", "http://x"], "--solver-model"),
        (["a.mp4", "--solver-model", "m"], "--solver"),
        (["a.mp4", "--nonsense"], "--nonsense"),
        (["a.mp4", "b.mp4"], "b.mp4"),
    ],
)
def test_wrong_flags(asked, args, says):
    got = invoke(*args)
    assert got.exit_code == Exit.USAGE
    assert says in got.output
    assert asked == []


def test_help_names_every_exit_code():
    got = invoke("--help")
    assert got.exit_code == 0
    text = " ".join(got.output.split())
    for code, meaning in MEANINGS.items():
        assert f"{code.value} {meaning}" in text


def vigil(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", "replay", *args],
        cwd=cwd, capture_output=True, text=True, timeout=150, env={"PATH": "", "PYTHONPATH": str(REPO)},
    )  # fmt: skip


def test_no_such_file(tmp_path):
    got = vigil("nothing.mp4", cwd=tmp_path)
    assert (got.returncode, "nothing.mp4" in got.stderr) == (Exit.NO_SOURCE, True)
    assert list(tmp_path.iterdir()) == []


def test_no_video_stream(tmp_path):
    (tmp_path / "notes.mp4").write_text("this is no video")
    got = vigil("notes.mp4", cwd=tmp_path)
    assert (got.returncode, "notes.mp4" in got.stderr) == (Exit.NO_VIDEO, True)


def test_engine_unreachable(tmp_path):
    got = vigil(str(clip("bikes.mp4")), "--engine", "http://127.0.0.1:9", cwd=tmp_path)
    assert (got.returncode, "http://127.0.0.1:9" in got.stderr) == (Exit.ENGINE_UNREACHABLE, True)
    assert "Traceback" not in got.stderr
    assert list(tmp_path.iterdir()) == []


def test_server_unreachable(tmp_path):
    got = vigil(str(clip("bikes.mp4")), "--server", "http://127.0.0.1:9", cwd=tmp_path)
    assert (got.returncode, "vigil serve" in got.stderr) == (Exit.ENGINE_UNREACHABLE, True)


def speaking(seen: Seen) -> str:
    return f"</response> Sight {seen.tick}."


class Process:
    """``vigil replay`` of a real clip in real time against ``engine``, until it is stopped."""

    def __init__(self, fake: FakeEngine, out: Path, *more: str) -> None:
        self.out = out
        self._args = [
            sys.executable, "-m", "orchestrator.cli", "replay", str(clip("bikes.mp4")), "--engine", fake.url,
            "--family", "joyvl", "--query", "What happens?", "--loop", "9", "--out", str(out), *more,
        ]  # fmt: skip

    async def until_said(self, count: int, number: signal.Signals) -> tuple[int, str, str]:
        """Send a signal once so many responses are printed; exit code, output and messages."""
        process = await asyncio.create_subprocess_exec(
            *self._args, cwd=REPO, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        said = b""
        try:
            async with asyncio.timeout(150):
                for _ in range(count):
                    said += await process.stdout.readline()
                process.send_signal(number)
                rest, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        return process.returncode, (said + rest).decode(), err.decode()

    def lines(self) -> list[str]:
        path = self.out / "decisions.jsonl"
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)]
)
async def test_a_signal_leaves_whole_files(tmp_path, number, exit_code):
    async with FakeEngine(speaking) as engine:
        process = Process(engine, tmp_path / "run")
        code, out, err = await process.until_said(3, number)
    assert code == exit_code, err
    rows = [json.loads(line) for line in process.lines()]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert all(list(row) == list(COLUMNS) for row in rows)
    assert (summary["outcome"], summary["ticks"]) == ("interrupted", len(rows))
    assert "was interrupted" in (tmp_path / "run/report.html").read_text()
    assert "Sight 1." in out
    assert "Traceback" not in err


async def test_a_kill_leaves_whole_lines(tmp_path):
    async with FakeEngine(speaking) as engine:
        process = Process(engine, tmp_path / "run", "--pace", "fast")
        code, _, _ = await process.until_said(5, signal.SIGKILL)
    assert code == -signal.SIGKILL
    text = (tmp_path / "run/decisions.jsonl").read_text()
    assert text.endswith("\n")
    assert [list(json.loads(line)) for line in text.splitlines()] == [list(COLUMNS)] * len(process.lines())
