"""Engines behind a router that pins sessions by the header ``x-session-id``: one address for Vigil."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import Served
from tests.fakes.engine import GENERATE, FakeEngine, Seen
from tests.fakes.router import Router

pytestmark = pytest.mark.timeout(180)

UNGATED: dict[str, Any] = {"decision": {"gate": False}}
NAMES = tuple(f"cam-{n}" for n in range(16))  # they are spread by a hash: both engines get some


TAGS = ("</silence>", "</response>", "</delegation>")


def says(seen: Seen) -> str:
    return f"</response> Frame {seen.tick}." if seen.session else "</silence>"


def fake(*, ids: bool = False) -> FakeEngine:
    return FakeEngine(says, tags=TAGS, image_tokens=16, token_route=ids)


def decisions(engine: FakeEngine) -> list[Seen]:
    return [seen for seen in engine.asked if seen.kind == "decide" and seen.session]


def sessions(engine: FakeEngine) -> set[str]:
    return {seen.session for seen in decisions(engine)}


async def see(served: Served, name: str, number: int) -> dict[str, Any]:
    own = 100 * NAMES.index(name) + number  # no two sessions see the same picture
    answer = await served.see(own, headers={"x-session-id": name})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("ids", [False, True], ids=["messages", "ids"])
async def test_every_session_stays_at_its_engine_and_finds_its_prefix(tmp_path: Path, ids: bool) -> None:
    async with (
        fake(ids=ids) as one,
        fake(ids=ids) as two,
        Router([one.url, two.url]) as router,
        Served(router, tmp_path, **UNGATED) as served,
    ):
        for number in range(4):
            await asyncio.gather(*(see(served, name, number) for name in NAMES))
        assert sessions(one) and sessions(two) and not sessions(one) & sessions(two)
        for seen in (*decisions(one), *decisions(two)):
            assert seen.status == 200 and len(seen.payloads) == 1
            assert seen.tick == 0 or seen.cached_tokens > 0
            assert (seen.path == GENERATE) == (ids and seen.tick > 0)


async def test_sessions_of_an_engine_that_dies_go_on_at_another(tmp_path: Path) -> None:
    """Nothing is known there: every picture is sent once more, and the answers go on without a gap."""
    async with (
        fake() as one,
        fake() as two,
        Router([one.url, two.url]) as router,
        Served(router, tmp_path, **UNGATED) as served,
    ):
        for number in range(3):
            await asyncio.gather(*(see(served, name, number) for name in NAMES))
        at_one = sessions(one)
        assert at_one and sessions(two)
        one.kill()
        answers = await asyncio.gather(*(see(served, name, 3) for name in NAMES))
        assert [answer["interaction"]["action"] for answer in answers] == ["response"] * len(NAMES)
        assert at_one <= sessions(two)
        first = next(seen for seen in decisions(two) if seen.session in at_one and seen.status == 200)
        assert len(first.images) == len(first.payloads) == 4
