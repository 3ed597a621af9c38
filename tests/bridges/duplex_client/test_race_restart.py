"""The engine dies. Its next instance knows no old session, which proves that the old one is gone."""

from __future__ import annotations

import asyncio

import pytest

from bridges.duplex_client.link import LinkEnded, LinkError, LinkLost
from tests.bridges.duplex_client.linked import linked, unit
from tests.fakes.duplex_engine import DuplexEngine


async def test_it_comes_back_as_another() -> None:
    async with DuplexEngine("listen", time_scale=100) as engine, linked(engine) as one:
        await one.link.append(unit(0))
        await engine.restart()
        await one.until(lambda: one.of(LinkEnded))
        assert [type(event) for event in one.events if not hasattr(event, "model_listen")] == [
            LinkLost,
            LinkEnded,
        ]
        assert one.events[-1] == LinkEnded("session_resume_expired", True)
        assert await one.link.close("x")


async def test_it_stays_away() -> None:
    async with DuplexEngine("listen") as engine, linked(engine, resume_s=0.4) as one:
        waiting = [asyncio.create_task(one.link.update({})) for _ in range(3)]
        await engine.die()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {getattr(result, "code", None) for result in results} <= {"link_lost", None}
        await one.until(lambda: one.of(LinkEnded))
        assert one.events[-1] == LinkEnded("link_lost", False)
        assert not await one.link.close("x")
        with pytest.raises(LinkError):
            await one.link.clear()


async def test_it_comes_back_within_the_time() -> None:
    async with DuplexEngine("listen") as engine, linked(engine) as one:
        await engine.die()
        await one.until(lambda: one.of(LinkLost))
        await engine.restart()
        await one.until(lambda: one.of(LinkEnded))
        assert one.events[-1] == LinkEnded("session_resume_expired", True)
