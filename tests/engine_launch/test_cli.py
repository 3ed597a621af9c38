"""``vigil engine``: what is printed, and the exit codes that scripts rely on."""

from __future__ import annotations

import dataclasses
import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from engine_launch import cli, launch, supervisor
from engine_launch.cli import make_app
from engine_launch.errors import BootFailed, PortTaken
from engine_launch.liveness import Liveness
from engine_launch.profile import Profile
from engine_launch.supervisor import Running
from tests.engine_launch.real_engine import TAGS, free_port
from tests.engine_launch.scripted_engine import SILENT, ScriptedEngine, serving

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """``run("check", URL)`` -> (exit code, what was printed)"""
    monkeypatch.setenv("VIGIL_CACHE", str(tmp_path))
    families = {"joyvl": TAGS, "generic": TAGS}

    def invoke(*arguments: str) -> tuple[int, str]:
        printed = io.StringIO()
        app = make_app(families.__getitem__, Console(file=printed, width=200))
        before = signal.getsignal(signal.SIGTERM)
        try:
            result = CliRunner().invoke(app, list(arguments))
        finally:
            signal.signal(signal.SIGTERM, before)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, printed.getvalue() + result.output

    return invoke


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_checks_fit_into_the_terminal(width: int) -> None:
    printed = io.StringIO()
    app = make_app({"generic": TAGS}.__getitem__, Console(file=printed, width=width))
    CliRunner().invoke(app, ["check", f"http://127.0.0.1:{free_port()}"])
    rows = [line for line in printed.getvalue().splitlines() if line[:1] in "┃│" and line]
    assert rows and all(line[-1] in "┃│" for line in rows)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    scripted = ScriptedEngine()
    with serving(scripted):
        yield scripted


@pytest.fixture
def running(engine: ScriptedEngine) -> Iterator[Running]:
    """A state that names a process of ours and the scripted engine's address."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    state = Running(
        name="standin-cpu",
        profile="standin-cpu",
        family="joyvl",
        pid=process.pid,
        started=supervisor.psutil.Process(process.pid).create_time(),
        url=engine.url,
        model="m",
        version="0.32.0",
        digest="",
        image_cache="lru",
        image_cache_bytes=2**20,
        priority=True,
        log="/nowhere.log",
    )
    yield state
    process.kill()
    process.wait()


def test_check_of_a_good_engine(run: Run, engine: ScriptedEngine) -> None:
    code, printed = run("check", engine.url, "--family", "joyvl")
    assert code == 0
    assert "two images sent twice" in printed and "prefix property" in printed


def test_check_takes_the_address_of_a_socket(run: Run, engine: ScriptedEngine) -> None:
    code, said = run("check", engine.url.replace("http://", "ws://") + "/v1/realtime?duplex=1")
    assert (code, "nothing answers" in said) == (0, False)


def test_check_of_an_engine_that_falls_short_shows_the_remedy(run: Run, engine: ScriptedEngine) -> None:
    engine.limit = 0
    code, printed = run("check", engine.url)
    assert code == cli.CHECK_FAILED
    assert "Serve a vision model." in printed


def test_check_of_a_model_that_is_not_served(run: Run, engine: ScriptedEngine) -> None:
    code, printed = run("check", engine.url, "--model", "other")
    assert code == cli.CHECK_FAILED and "Served models: m" in printed


def test_check_of_nothing(run: Run) -> None:
    code, printed = run("check", f"http://127.0.0.1:{free_port()}")
    assert code == cli.NO_ANSWER and "vigil engine up" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("check", "standin-cpu"), cli.NOT_THERE, "vigil engine up standin-cpu"),
        (("check", "joyvl"), cli.NOT_THERE, "does not run"),
        (("check", "nothing"), cli.USAGE, "there is no profile"),
        (("up", "nothing"), cli.USAGE, "Profiles: "),
        (("down", "joyvl:24gb"), cli.NOT_THERE, "Running engines: none"),
        (("check", "http://127.0.0.1:1", "--family", "none"), cli.USAGE, "no prompt pack"),
        (("frobnicate",), cli.USAGE, "No such command"),
        (("list",), 0, "joyvl:48gb"),
    ],
)
def test_exit_codes(run: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    got, printed = run(*arguments)
    assert got == code and words in printed


def test_check_and_list_and_down_by_profile(run: Run, running: Running) -> None:
    supervisor.remember(running)
    code, printed = run("check", "standin-cpu")
    assert code == 0 and "lru, 1 MiB" in printed
    assert f"running: standin-cpu at {running.url}" in run("list")[1]
    assert "stopped standin-cpu" in run("down", "standin-cpu")[1]
    assert not running.alive()


def test_up_shows_the_table_and_how_to_stop_it(
    run: Run, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Profile] = []

    def up(profile: Profile, **options: object) -> Running:
        asked.append(profile)
        return running

    monkeypatch.setattr(launch, "up", up)
    code, printed = run("up", "standin-cpu", "--model", "/some/folder")
    assert code == 0
    assert "vigil engine down standin-cpu" in printed and running.url in printed
    assert (asked[0].model.path, asked[0].model.builder) == ("/some/folder", None)


@pytest.mark.parametrize("error", [PortTaken("port 8000 is taken", "Choose another."), None])
def test_a_failed_start_tells_the_log_and_the_remedy(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    def up(*_: object, **__: object) -> Running:
        raise error or BootFailed("it ended", "Do this.", ("line of the log",))

    monkeypatch.setattr(launch, "up", up)
    code, printed = run("up", "standin-cpu")
    assert code == cli.NOT_STARTED
    assert "Choose another." in printed if error else "line of the log\nit ended\nDo this." in printed


def test_an_interrupted_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def up(*_: object, **__: object) -> Running:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("not reached")

    monkeypatch.setattr(launch, "up", up)
    assert run("up", "standin-cpu")[0] == cli.INTERRUPTED


def test_staying_ends_with_the_engine(run: Run, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "up", lambda *_, **__: running)
    monkeypatch.setattr(launch, "watch", lambda running, duplex: "standin-cpu is wedged")
    code, printed = run("up", "standin-cpu", "--stay")
    assert code == cli.NO_ANSWER and "is wedged" in printed
    assert not running.alive(), "a wedged engine is not left behind"


def test_staying_ends_when_told(run: Run, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "up", lambda *_, **__: running)
    monkeypatch.setattr(launch, "watch", lambda running, duplex: signal.raise_signal(signal.SIGTERM))
    assert run("up", "standin-cpu", "--stay")[0] == 0
    assert not running.alive()


def test_a_watched_engine_is_given_up_only_when_wedged_again_and_again(
    engine: ScriptedEngine, running: Running
) -> None:
    asked = [0]
    usual = engine.routes["/v1/chat/completions"]

    def chat(body: dict[str, object]) -> tuple[int, object]:
        asked[0] += 1
        return usual(body) if asked[0] in (1, 4) else SILENT

    engine.routes["/v1/chat/completions"] = chat
    assert Liveness.WEDGED in launch.watch(running, every_s=0.01, deadline_s=0.2)
    assert asked[0] == 4 + launch.WATCH_MISSES


def test_a_watched_engine_that_ends_is_noticed(running: Running) -> None:
    gone = dataclasses.replace(running, started=running.started - 100)
    assert launch.watch(gone, every_s=0.01) == "standin-cpu ended"
