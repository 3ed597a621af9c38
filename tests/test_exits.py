"""How commands end: one number for one thing, whichever command it is."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from engine_launch import cli as engine_cli
from orchestrator.cli import app
from orchestrator.exits import MEANINGS, Exit
from orchestrator.wire.audio import write_wav

DOCS = Path(__file__).parent.parent / "docs" / "operations.md"
WATCH = ("clip.jpg", "--pace", "fast", "--max-ticks", "1", "--out", "run")


def vigil(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a recording and a picture."""
    from tests.fakes.pictures import jpeg

    (tmp_path / "in.wav").write_bytes(write_wav(np.zeros(1600, np.float32), 16000))
    (tmp_path / "clip.jpg").write_bytes(jpeg(0, 224, 224))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nobody() -> Iterator[str]:
    """``HOST:PORT`` at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_the_documentation_has_every_code() -> None:
    table = re.findall(r"^\| (\d+) \| (.+) \|$", DOCS.read_text().partition("## Exit codes")[2], re.M)
    assert {Exit(int(code)): meaning for code, meaning in table[: len(Exit)]} == MEANINGS
    assert set(MEANINGS) == set(Exit)


def test_the_engine_launcher_has_the_same_numbers() -> None:
    assert (engine_cli.CHECK_FAILED, engine_cli.USAGE) == (Exit.FAILED, Exit.USAGE)
    assert engine_cli.NO_ANSWER == engine_cli.NOT_THERE == Exit.ENGINE_UNREACHABLE
    assert (engine_cli.NOT_STARTED, engine_cli.INTERRUPTED) == (Exit.NOT_STARTED, Exit.INTERRUPTED)


@pytest.mark.parametrize(
    "arguments",
    [
        ("talk",),
        ("talk", "--session", "door"),
        ("talk", "--audio", "in.wav", "--out", "out.wav"),
        ("attach", "door", "clip.jpg"),
        ("detach", "door"),
        ("session", "list"),
        ("session", "export", "door", "--out", "door.tar"),
        ("engine", "served"),
        ("engine", "drain", "gpu-1:8000"),
        ("load", "--sessions", "1"),
        ("top", "--once"),
        ("replay", *WATCH),
        ("replay", "--audio", "in.wav", "--out", "run"),
    ],
    ids=" ".join,
)
def test_a_service_that_is_not_there(here: Path, nobody: str, arguments: tuple[str, ...]) -> None:
    done = vigil(*arguments, "--server", f"http://{nobody}")
    assert done.exit_code == Exit.ENGINE_UNREACHABLE, done.output


@pytest.mark.parametrize("address", ["http://[::1", "127.0.0.1:8070", "ftp://127.0.0.1", "http://a:99999"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("attach", "door", "clip.jpg", "--server"),
        ("detach", "door", "--server"),
        ("session", "list", "--server"),
        ("engine", "served", "--server"),
        ("load", "--sessions", "1", "--server"),
        ("load", "--sessions", "1", "--engine"),
        ("top", "--once", "--server"),
        ("replay", *WATCH, "--server"),
    ],
    ids=" ".join,
)
def test_an_address_that_is_none(here: Path, arguments: tuple[str, ...], address: str) -> None:
    done = vigil(*arguments, address)
    assert done.exit_code == Exit.USAGE and "is a URL: http://host:port" in done.output, done.output


@pytest.mark.parametrize("option", ["--seconds", "--warm", "--bound"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1"])
def test_times_of_a_load_are_times(option: str, value: str) -> None:
    assert vigil("load", option, value).exit_code == Exit.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--no-auth-required", "--port", "0", "--engine", "http://{}"),
        ("serve", "--no-auth-required", "--port", "0", "--engine", "ws://{}", "--family", "minicpmo_4_5"),
        ("serve", "--no-auth-required", "--port", "0", "--engine", "ws://{}"),
        ("replay", *WATCH, "--engine", "http://{}"),
        ("engine", "check", "http://{}"),
        ("engine", "check", "ws://{}"),
    ],
    ids=" ".join,
)
def test_an_engine_that_is_not_there(here: Path, nobody: str, arguments: tuple[str, ...]) -> None:
    done = vigil(*(argument.format(nobody) for argument in arguments))
    assert done.exit_code == Exit.ENGINE_UNREACHABLE, done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "none.mp4", "--engine", "http://{}"),
        ("replay", "--audio", "none.wav", "--server", "http://{}"),
        ("replay", "none.mp4", "--audio", "in.wav", "--server", "http://{}"),
        ("replay", "--audio", "in.wav", "--ref-audio", "none.wav", "--server", "http://{}"),
        ("talk", "--audio", "none.wav", "--out", "out.wav", "--server", "http://{}"),
        ("talk", "--audio", "clip.jpg", "--out", "out.wav", "--server", "http://{}"),
    ],
    ids=" ".join,
)
def test_a_file_that_is_not_there_is_told_before_anybody_is_asked(
    here: Path, nobody: str, arguments: tuple[str, ...]
) -> None:
    done = vigil(*(argument.format(nobody) for argument in arguments))
    assert done.exit_code == Exit.NO_SOURCE, done.output


@pytest.mark.parametrize("held", ["decisions.jsonl", "report.html"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", *WATCH, "--engine", "http://{}"),
        ("replay", *WATCH, "--server", "http://{}"),
        ("replay", "--audio", "in.wav", "--server", "http://{}", "--out", "run"),
        ("talk", "--audio", "in.wav", "--server", "http://{}", "--out", "run/said.wav"),
    ],
    ids=" ".join,
)
def test_an_earlier_run_is_not_written_over(
    here: Path, nobody: str, arguments: tuple[str, ...], held: str
) -> None:
    """It is told before anybody is asked, and nothing of it is touched."""
    (here / "run").mkdir()
    (here / "run" / held).write_text("dear")
    done = vigil(*(argument.format(nobody) for argument in arguments))
    taken = held == "decisions.jsonl" or "--audio" not in arguments
    assert done.exit_code == (Exit.USAGE if taken else Exit.ENGINE_UNREACHABLE), done.output
    assert ("name another" in done.output) == taken
    assert (here / "run" / held).read_text() == "dear"


@pytest.mark.parametrize(
    "arguments",
    [
        ("talk", "--server", "ftp://x"),
        ("talk", "--server", "http://[::1", "--session", "door"),
        ("attach", "door", "clip.jpg", "--server", "nowhere"),
        ("session", "list", "--server", "nowhere"),
        ("replay", *WATCH, "--server", "nowhere"),
        ("serve", "--port", "nothing"),
        ("eval", "run", "none.jsonl", "--out", "run"),
        ("eval", "score", "none"),
        ("doctor", "prefix", "none"),
        ("key", "a b"),
        ("engine", "up", "nothing"),
    ],
    ids=" ".join,
)
def test_what_is_asked_wrongly(here: Path, arguments: tuple[str, ...]) -> None:
    done = vigil(*arguments)
    assert done.exit_code == Exit.USAGE, done.output
