"""A run's manifest that is something else is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evals.runs.manifest import PACK, RUN, RunError, engine_of, read_manifest
from prompts.loader import load_pack


@pytest.mark.parametrize("content", ["[]", "3", "null", '"run"', "{}"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / RUN).write_text(content)
    with pytest.raises(RunError, match="another format"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("found", [{}, {"engine": None}, {"engine": []}, {"engine": {}}, {"engine": "joyvl"}])
def test_a_manifest_without_an_engine_is_refused(tmp_path: Path, found: dict[str, Any]) -> None:
    (tmp_path / PACK).write_text(load_pack("generic").source, encoding="utf-8")
    with pytest.raises(RunError, match="what its engine was"):
        engine_of(tmp_path, found)
