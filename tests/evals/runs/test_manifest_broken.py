"""A run's manifest that is something else is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evals.runs.manifest import RUN, RunError, read_manifest, settings_of
from tests.evals.scoring.runs import manifest


@pytest.mark.parametrize("content", ["[]", "3", "null", '"run"', "{}"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / RUN).write_text(content)
    with pytest.raises(RunError, match="another format"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("engine", [None, [], {}, "joyvl", {"model": "m", "block_tokens": "many"}])
def test_a_manifest_without_an_engine_is_refused(tmp_path: Path, engine: Any) -> None:
    (tmp_path / RUN).write_text(json.dumps(manifest(1) | {"engine": engine}))
    with pytest.raises(RunError, match=r"run\.json: engine"):
        read_manifest(tmp_path)


def test_a_manifest_of_old_is_of_a_model_that_was_asked_tick_by_tick(tmp_path: Path) -> None:
    old = manifest(1)
    del old["kind"]
    (tmp_path / RUN).write_text(json.dumps(old))
    assert read_manifest(tmp_path)["kind"] == "ticks"


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(RunError, match=r"memory\.chunk_frames"):
        settings_of({"memory": {"chunk_frames": -3}})
