"""What the composition root refuses, and how facts become limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_launch.facts import EngineFacts
from orchestrator.app import open_core
from orchestrator.engine_fit import engine_limits, window_limits
from orchestrator.engine_setup import prepare_engine
from orchestrator.exits import Exit, SetupError
from orchestrator.setting_groups import MemoryGroup
from orchestrator.settings import Settings
from prompts.loader import load_pack
from tests.fakes.engine import FakeEngine


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"family": "nobody"}, "generic"),
        ({"persona": "pirate"}, "default"),
        ({"language": "tlh"}, "en"),
        ({"decision": {"threshold": 0.5}, "family": "joyvl"}, "share their first"),
    ],
)
async def test_what_the_pack_or_the_engine_cannot_do(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    # Two bytes a token: tags that begin with "</" share their first token.
    async with FakeEngine(bytes_per_token=2) as fake:
        wanted = Settings(engine=fake.url, data=tmp_path, **settings)
        with pytest.raises(SetupError, match=words) as refused:
            engine = await asyncio.to_thread(prepare_engine, wanted, lambda line: None)
            await open_core(wanted, engine, durable=False)
    assert refused.value.exit_code is Exit.USAGE


async def test_an_engine_without_pictures_is_refused(tmp_path: Path) -> None:
    async with FakeEngine(max_images=0) as fake:
        with pytest.raises(SetupError, match="no images") as refused:
            await asyncio.to_thread(prepare_engine, Settings(engine=fake.url), lambda line: None)
    assert refused.value.code == "engine_unfit"


async def test_a_weak_engine_is_told_of_and_served() -> None:
    told: list[str] = []
    async with FakeEngine(prefix_cache=False) as fake:
        engine = await asyncio.to_thread(prepare_engine, Settings(engine=f"{fake.url}/v1/"), told.append)
        assert engine.url == fake.url
    assert any("prefix cache" in line for line in told)
    assert engine_limits(engine.pack, engine.facts, "").block_tokens == 0


FACTS = EngineFacts(
    model="m",
    context_tokens=8192,
    max_images=32,
    block_tokens=16,
    reports_cached=True,
    prefix_cache=True,
    tag_ids={"</silence>": 7},
    decision_index=0,
    decision_ids={"silence": 7, "response": 8},
)


def test_the_window_is_planned_inside_the_engine() -> None:
    pack = load_pack("joyvl")
    limits = window_limits(pack, FACTS, MemoryGroup())
    assert (limits.max_images, limits.context_tokens) == (32, 8192)
    assert limits.reply_tokens == pack.decide.max_tokens


def test_a_request_uses_what_the_self_check_found() -> None:
    pack = load_pack("joyvl")
    limits = engine_limits(pack, FACTS, "salt")
    assert limits.block_tokens == 16
    assert limits.silence_stop_id == 7
    assert limits.decision is not None
    assert (limits.decision.response, limits.decision.silence) == (8, 7)
    assert limits.cache_salt == "salt"
    unknown = replace(FACTS, decision_index=None, tag_ids={}, reports_cached=False)
    limits = engine_limits(pack, unknown, "")
    assert (limits.decision, limits.silence_stop_id, limits.block_tokens) == (None, None, 0)
    assert limits.cache_salt is None


async def test_a_data_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    locked, broken = tmp_path / "locked", tmp_path / "broken"
    (locked / "vigil.lock").mkdir(parents=True)
    broken.mkdir()
    (broken / "vigil.db").write_bytes(b"no database" * 500)
    async with FakeEngine() as fake:
        for folder in (locked, broken):
            wanted = Settings(engine=fake.url, data=folder)
            engine = await asyncio.to_thread(prepare_engine, wanted, lambda line: None)
            with pytest.raises(SetupError, match=f"data folder {folder}") as refused:
                await open_core(wanted, engine, durable=True)
            assert refused.value.exit_code is Exit.USAGE
