"""Answers held to the model's tags, where the engine can do that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.exits import SetupError
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine

CONSTRAINED: dict[str, Any] = {"decision": {"gate": False, "constrain": True}}


async def test_an_answer_without_a_tag_cannot_come(tmp_path: Path) -> None:
    """Contract: the engine was asked once before the first tick, which therefore waits for no compiler; the
    model that would ramble is silent instead, and healthy."""
    async with (
        FakeEngine(["A dog without a tag."]) as engine,
        Served(engine, tmp_path, **CONSTRAINED) as served,
    ):
        assert [seen for seen in engine.chats if "structured_outputs" in seen.params]
        for n in range(3):
            interaction = (await served.see(n)).json()["interaction"]
            assert (interaction["action"], interaction["spoke"]) == ("silence", False)
        about = (await served.client.get("/v1/sessions/cam")).json()
        assert about["silent_because"] == {"model": 3}
        decided = [seen for seen in engine.chats if seen.kind == "decide"][-3:]
        assert all("structured_outputs" in seen.params for seen in decided)


async def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, decision={"gate": False}) as served:
        await served.see(0)
        assert not [seen for seen in engine.chats if "structured_outputs" in seen.params]


async def test_an_engine_that_ignores_it_is_refused_by_name(tmp_path: Path) -> None:
    async with FakeEngine(structured=False) as engine:
        with pytest.raises(SetupError, match=r"decision\.constrain") as refused:
            async with Served(engine, tmp_path, **CONSTRAINED):
                pass
        assert refused.value.code == "constrain_refused"
