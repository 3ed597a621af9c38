"""A close is confirmed by the engine or it is not; one that is not may be tried again, and never hangs."""

from __future__ import annotations

import asyncio

import pytest

from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import LinkEnded, LinkError, ResponseDone
from tests.bridges.duplex_client.linked import SESSION, linked, options, unit
from tests.fakes.duplex_engine import DuplexEngine, Faults


async def test_confirmed() -> None:
    async with DuplexEngine() as engine, linked(engine) as one:
        assert await one.link.close("done")
        assert await one.link.close("again")
        assert engine.sessions[0].closed == "done" and not engine.live
        assert len(engine.sessions[0].commands("session.close")) == 1


async def test_closes_side_by_side() -> None:
    async with DuplexEngine(faults=Faults(close_ms=50)) as engine, linked(engine) as one:
        assert await asyncio.gather(*(one.link.close("done") for _ in range(5))) == [True] * 5
        assert len(engine.sessions[0].commands("session.close")) == 1


async def test_not_confirmed_and_tried_again() -> None:
    faults = Faults(close_silent=True)
    async with DuplexEngine(faults=faults) as engine, linked(engine, close_s=0.2) as one:
        (session,) = engine.sessions
        assert not await one.link.close("done")
        await one.until(lambda: one.of(LinkEnded))
        assert one.events == [LinkEnded("timeout", False)]
        assert engine.live == [session]
        session.closing = False
        assert not await one.link.close("again")
        session.closing, faults.close_silent = False, False
        assert await one.link.close("at last")
        assert session.closed == "at last" and not engine.live
        assert await one.link.close("for nothing")


async def test_after_the_engine_died() -> None:
    async with DuplexEngine() as engine, linked(engine, close_s=0.2, resume_s=0.2) as one:
        await engine.die()
        assert not await one.link.close("done")
        await engine.restart()
        assert await one.link.close("again")


async def test_while_the_socket_is_lost() -> None:
    """The close waits for the resume as other commands do."""
    async with DuplexEngine() as engine, linked(engine) as one:
        engine.drop()
        assert await one.link.close("done")
        assert engine.sessions[0].closed == "done"


async def test_behind_appends_that_wait() -> None:
    async with DuplexEngine("listen", time_scale=100) as engine, linked(engine) as one:
        appends = [asyncio.create_task(one.link.append(unit(number))) for number in range(5)]
        await asyncio.sleep(0)
        assert await one.link.close("done")
        await asyncio.gather(*appends)
        appended = engine.sessions[0].commands("input_audio_buffer.append")
        assert [event["audio_end_ms"] for event in appended] == [1000, 2000, 3000, 4000, 5000]


async def test_commands_are_refused_from_then_on() -> None:
    async with DuplexEngine(faults=Faults(close_ms=50)) as engine, linked(engine) as one:
        closing = asyncio.create_task(one.link.close("done"))
        await asyncio.sleep(0)
        with pytest.raises(LinkError) as refused:
            await one.link.append(unit(0))
        assert refused.value.code == "link_closed"
        assert await closing


async def test_events_before_the_end_are_delivered() -> None:
    async with DuplexEngine("pattern:E", time_scale=100) as engine, linked(engine) as one:
        await one.link.append(unit(0))
        await one.until(lambda: one.of(ResponseDone))
        await one.link.close("done")
        await one.until(lambda: one.of(LinkEnded))
        assert one.events[-1] == LinkEnded("done", True)


async def test_before_the_session_is_open() -> None:
    """The engine holds our opening back: whether it opens a session is not known."""
    async with DuplexEngine() as engine:
        engine.wedge()
        link = DuplexLink(options(engine, close_s=0.2))
        opening = asyncio.create_task(link.open(SESSION))
        await asyncio.sleep(0)
        assert not await link.close("too early") or not engine.openings
        with pytest.raises(LinkError):
            await opening
        engine.unwedge()


async def test_an_opening_that_is_given_up() -> None:
    async with DuplexEngine() as engine:
        engine.wedge()
        link = DuplexLink(options(engine, close_s=5))
        opening = asyncio.create_task(link.open(SESSION))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        closing = asyncio.create_task(link.close("given up"))
        await asyncio.sleep(0)
        engine.unwedge()
        assert await closing
        assert [session.closed for session in engine.sessions] == ["given up"]
