"""``vigil engine up``, ``check`` and ``down`` of a full-duplex engine, whose process is the genuine server.

Only what needs a GPU is replaced: the look for one, the environment, and the command that loads weights.
"""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from engine_launch import cli, launch, supervisor
from engine_launch import profile as profiles
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.target import already_running
from engine_launch.venv import EngineVenv
from orchestrator.duplex_spec import duplex_for_family
from tests.engine_launch.real_engine import free_port
from tests.peers.environment import peer_venv
from tests.peers.peer import SERVER

pytestmark = pytest.mark.peer

NAME = "minicpmo_4_5"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    venv = peer_venv()
    found = free_port()
    options = {
        "family": NAME,
        "port": found,
        "limits": {"max_sessions": 4},
        "knobs": {"script": "pattern:LE"},
    }
    monkeypatch.setenv("VIGIL_CACHE", str(tmp_path))
    monkeypatch.setattr(profiles, "gpus_gib", lambda: [79.6])
    monkeypatch.setattr(
        launch, "engine_venv", lambda kind, progress: EngineVenv(venv.python, "0.30.0", True, "cpu")
    )
    monkeypatch.setattr(launch, "_command", lambda *_: [str(venv.python), str(SERVER), json.dumps(options)])
    yield found
    running = supervisor.find(NAME)
    if running is not None:
        supervisor.stop(running, 10.0)


def run(*arguments: str) -> tuple[int, str]:
    printed = io.StringIO()
    app = cli.make_app({}.__getitem__, Console(file=printed, width=200), duplex_for_family=duplex_for_family)
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(app, list(arguments))
    finally:
        signal.signal(signal.SIGTERM, before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, printed.getvalue()


def test_an_engine_from_its_start_to_its_end(port: int) -> None:
    code, printed = run("up", NAME, "--port", str(port))
    assert code == 0, printed
    assert "warming up: a first session" in printed
    assert "warn" not in printed and "the other" in printed, "four sessions, as its profile has it"
    assert f"serves minicpm-o at http://127.0.0.1:{port}" in printed

    running = supervisor.find(NAME)
    assert running is not None and running.duplex and running.family == NAME
    code, printed = run("up", NAME, "--port", str(port))
    assert code == 0 and "runs already" in printed
    code, printed = run("check", NAME)
    assert code == 0 and "24000 Hz out" in printed

    spec = duplex_for_family(NAME)
    assert isinstance(spec, DuplexSpec)
    assert already_running(NAME, spec) == running
    code, printed = run("down", NAME)
    assert code == 0 and supervisor.find(NAME) is None
    assert launch.watch(running, spec, every_s=0.01) == f"{NAME} ended"
    code, printed = run("check", f"http://127.0.0.1:{port}", "--family", NAME)
    assert code == cli.NO_ANSWER
