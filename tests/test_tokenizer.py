"""The served model's tokenizer sets the scale of a new session's estimates, and the log keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine_launch.facts import EngineFacts
from orchestrator.exits import SetupError
from orchestrator.tokenizer import learned_scale
from prompts.loader import load_pack
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine

PACK = load_pack("joyvl")


def letters(folder: Path) -> Path:
    """A tokenizer that knows letters alone: every text takes far more tokens than one would think."""
    file = folder / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": {chr(97 + n): n for n in range(26)}}}))
    return file


def test_the_file_beside_the_weights_counts_where_it_is_here(tmp_path: Path) -> None:
    here = EngineFacts("m", weights=str(tmp_path))
    assert learned_scale(None, here, PACK, "default", "en") == 1.0
    letters(tmp_path)
    scale = learned_scale(None, here, PACK, "default", "en")
    assert scale > 2
    for elsewhere in (None, "org/model", "/nowhere"):
        assert learned_scale(None, replace(here, weights=elsewhere), PACK, "default", "en") == 1.0
    (tmp_path / "tokenizer.json").write_text("{}")
    assert learned_scale(None, here, PACK, "default", "en") == 1.0, "another kind of tokenizer is none"


def test_a_named_file_has_to_be_one(tmp_path: Path) -> None:
    facts = EngineFacts("m", weights=None)
    assert learned_scale(letters(tmp_path), facts, PACK, "default", "en") > 2
    with pytest.raises(SetupError) as refused:
        learned_scale(tmp_path / "none.json", facts, PACK, "default", "en")
    assert refused.value.code == "bad_tokenizer"


async def test_a_session_begins_with_that_scale(tmp_path: Path) -> None:
    async with (
        FakeEngine(["</silence>"]) as engine,
        Served(engine, tmp_path, tokenizer=letters(tmp_path)) as served,
    ):
        assert (await served.see(1)).status_code == 200
        session = served.core.registry.owned("local", "cam")
        assert session is not None
        # The engine's own counts have begun to correct it.
        assert served.memory(session.id).parts.meter.text_scale > 1.5
