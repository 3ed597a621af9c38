"""The ``vigil`` command: flags, messages and exit codes."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import orchestrator.serve
from orchestrator.cli import app
from orchestrator.exits import Exit
from orchestrator.flags import settings_of
from orchestrator.folder_lock import FolderLock
from orchestrator.settings import Settings, flag_of, leaves
from tests.fakes.engine import FakeEngine


def vigil(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


def test_the_lines_of_a_help_text_are_those_of_the_terminal() -> None:
    shown = vigil("talk", "--help").output
    assert "or leaves one that was joined." in shown and "beside it decisions.jsonl tells" in shown
    assert "leaves one that was joined." in vigil("--help").output
    assert re.search(r"\n +5 +the engine", vigil("replay", "--help").output), "a list stays one"


@pytest.mark.parametrize(
    "arguments", [("top", "--once"), ("load", "--sessions", "1"), ("session", "list"), ("detach", "door")]
)
def test_a_service_that_is_not_there_has_one_exit_code(arguments: tuple[str, ...]) -> None:
    done = vigil(*arguments, "--server", "http://127.0.0.1:9")
    assert done.exit_code == Exit.ENGINE_UNREACHABLE
    assert "can't reach http://127.0.0.1:9" in done.output


def test_a_load_says_at_once_where_its_figures_can_not_be_written(tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "no" / "load.json"):
        done = vigil("load", "--out", str(out))
        assert done.exit_code == Exit.USAGE and "it is a folder, or in none" in done.output


def test_scenes_that_can_not_be_made_leave_nothing(tmp_path: Path) -> None:
    done = vigil("eval", "scenes", str(tmp_path / "made"), "--count", "1", "--minutes", "0.6")
    assert done.exit_code == Exit.USAGE and "too short" in done.output and not (tmp_path / "made").exists()
    (tmp_path / "file").touch()
    done = vigil("eval", "scenes", str(tmp_path / "file" / "made"), "--count", "1", "--minutes", "1.3")
    assert done.exit_code == Exit.USAGE and "can't write to" in done.output


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that ``vigil serve`` was run with."""
    seen: list[Settings] = []

    def serve(settings: Settings) -> Exit:
        seen.append(settings)
        return Exit.OK

    monkeypatch.setattr(orchestrator.serve, "serve", serve)
    return seen


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version(asked: str) -> None:
    result = vigil(asked)
    assert result.exit_code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", result.stdout)


def test_help_names_every_command() -> None:
    result = vigil("--help")
    for name in ("serve", "key", "engine", "replay", "session", "doctor", "eval", "version"):
        assert name in result.stdout


@pytest.mark.parametrize("command", [("replay",), ("engine", "up"), ("engine", "check"), ("engine", "down")])
def test_commands_of_other_rooms_are_there(command: tuple[str, ...]) -> None:
    result = vigil(*command, "--help")
    assert result.exit_code == 0, result.output


def test_every_setting_is_a_flag() -> None:
    result = vigil("serve", "--help")
    for path, _ in leaves():
        assert flag_of(path) in result.stdout
    assert "TOML file of settings" in result.stdout


def test_flags_reach_the_settings(served: list[Settings], tmp_path: Path) -> None:
    config = tmp_path / "vigil.toml"
    config.write_text("persona = 'silent'")
    key = "sha256:" + "a" * 64
    result = vigil(
        *("serve", "--engine", "http://127.0.0.1:1", "--model", "m", "--port", "9", "--config", str(config)),
        *("--limits-sessions", "7", "--no-decision-gate", "--decision-threshold", "0.4"),
        *("--images-allow-hosts", "a.example", "--images-allow-hosts", "b.example"),
        *("--auth-api-keys", f"home={key}"),
    )
    assert result.exit_code == 0, result.output
    (settings,) = served
    assert (settings.engine, settings.model, settings.port) == ("http://127.0.0.1:1", "m", 9)
    assert settings.persona == "silent"
    assert settings.limits.sessions == 7
    assert settings.decision.gate is False
    assert settings.decision.threshold == 0.4
    assert settings.images.allow_hosts == ("a.example", "b.example")
    assert settings.auth.api_keys["home"].hash == key


def test_flags_that_are_not_given_leave_nothing() -> None:
    assert settings_of({"host": None, "limits__sessions": None, "images__allow_hosts": []}) == {}
    assert settings_of({"limits__sessions": 0, "decision__gate": False}) == {
        "limits": {"sessions": 0},
        "decision": {"gate": False},
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nonsense"], "No such option"),
        (["--port", "many"], "valid integer"),
        (["--limits-sessions", "0"], "limits.sessions"),
        (["--host", "0.0.0.0", "--no-auth-required"], "auth.required is off"),
        (["--config", "/nowhere/vigil.toml"], "can't read"),
    ],
)
def test_wrong_flags(served: list[Settings], arguments: list[str], words: str) -> None:
    result = vigil("serve", *arguments)
    assert result.exit_code == Exit.USAGE
    assert words in result.output
    assert served == []


def serve_here(*arguments: str, data: Path) -> Any:
    """In a process of its own: it is meant to end by itself."""
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli",
        "serve",
        "--data",
        str(data),
        "--port",
        "0",
        "--no-auth-required",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    done = serve_here("--engine", url, data=tmp_path)
    assert done.returncode == Exit.ENGINE_UNREACHABLE
    assert url in done.stderr
    assert "Traceback" not in done.stderr


def test_a_profile_that_does_not_exist(tmp_path: Path) -> None:
    done = serve_here("--engine", "standin-cup", data=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "standin-cpu" in done.stderr


async def test_a_model_that_is_not_served(tmp_path: Path) -> None:
    async with FakeEngine(model="there") as engine:
        done = await asyncio.to_thread(serve_here, "--engine", engine.url, "--model", "other", data=tmp_path)
    assert done.returncode == Exit.MODEL_MISSING
    assert "there" in done.stderr


async def test_a_data_folder_that_another_service_keeps_its_sessions_in(tmp_path: Path) -> None:
    other = FolderLock(tmp_path, alone=True)
    try:
        async with FakeEngine() as engine:
            done = await asyncio.to_thread(serve_here, "--engine", engine.url, data=tmp_path)
    finally:
        other.release()
    assert done.returncode == Exit.USAGE
    assert f"a service uses {tmp_path}; name another with --data" in done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "orchestrator.cli", "serve", "--no-auth-required"]
        command += ["--data", str(tmp_path), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == Exit.USAGE
    assert f"127.0.0.1:{port}" in done.stderr


def test_without_keys_nothing_is_served_unless_that_is_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestrator.cli", "serve", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == Exit.USAGE
    assert "vigil key NAME" in done.stderr
    assert "--no-auth-required" in done.stderr


def test_a_made_key_opens_what_its_hash_is_given_to(served: list[Settings]) -> None:
    made = vigil("key", "ann")
    key, line = made.stdout.splitlines()
    assert key not in line
    assert vigil("serve", "--auth-api-keys", line).exit_code == 0
    credentials = served[0].auth.credentials()
    assert credentials is not None
    assert credentials.tenant_of(key) == "ann"
    assert vigil("key", "ann bell").exit_code == Exit.USAGE


def test_the_service_imports_no_evals() -> None:
    code = "import sys, orchestrator.cli, orchestrator.serve; print([m for m in sys.modules if 'evals' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=150)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_command_has_its_name_and_a_word_of_help() -> None:
    told = vigil("--help")
    for name in ("serve", "engine", "replay", "session", "doctor", "eval", "version"):
        assert re.search(rf"^\W*{name}\s+\w+", told.output, re.M), name
