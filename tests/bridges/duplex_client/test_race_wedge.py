"""An engine takes everything and answers nothing: it counts as lost after ``silence_s``, and is given up
when no resume is answered within ``resume_s``."""

from __future__ import annotations

import asyncio

import pytest

from bridges.duplex_client.link import LinkEnded, LinkError, LinkLost, LinkResumed
from tests.bridges.duplex_client.linked import SESSION, linked, unit
from tests.fakes.duplex_engine import DuplexEngine

FAST = {"silence_s": 0.2, "resume_s": 0.6, "reply_s": 0.2, "close_s": 0.2}


async def test_it_stays_stuck() -> None:
    async with DuplexEngine("listen") as engine, linked(engine, **FAST) as one:
        engine.wedge()
        waiting = asyncio.create_task(one.link.append(unit(0)))
        await one.until(lambda: one.of(LinkEnded))
        assert [type(event) for event in one.events] == [LinkLost, LinkEnded]
        assert one.events[-1] == LinkEnded("link_lost", False)
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(LinkError) as refused:
            await one.link.append(unit(1))
        assert refused.value.code == "link_lost"


async def test_it_comes_back() -> None:
    async with DuplexEngine("listen") as engine, linked(engine, **{**FAST, "resume_s": 20}) as one:
        engine.wedge()
        await one.until(lambda: one.of(LinkLost))
        engine.unwedge()
        await one.until(lambda: one.of(LinkResumed))
        await one.link.update({})


async def test_it_is_stuck_from_the_start() -> None:
    async with DuplexEngine("listen") as engine:
        engine.wedge()
        async with linked(engine, opening=False, open_s=0.2, close_s=0.2) as one:
            with pytest.raises(LinkError) as refused:
                await one.link.open(SESSION)
            assert refused.value.code == "timeout"
            await one.until(lambda: one.events)
            assert one.events == [LinkEnded("timeout", False)]


async def test_a_reply_that_does_not_come() -> None:
    async with DuplexEngine("listen") as engine, linked(engine, reply_s=0.1) as one:
        engine.wedge()
        with pytest.raises(LinkError) as late:
            await one.link.clear()
        assert (late.value.code, late.value.retryable) == ("timeout", True)
        engine.unwedge()
