"""A socket breaks while appends are under way: what was wholly written is never written again."""

from __future__ import annotations

import asyncio

import pytest

from bridges.duplex_client.link import EngineUnit, LinkResumed
from tests.bridges.duplex_client.linked import LOOPS, linked, run_on, unit
from tests.fakes.duplex_engine import MINICPM_VISION_LIKE, DuplexEngine

LARGE = EngineUnit(frames=(b"\xff\xd8" + bytes(9 * 2**20),), end_ms=1000)
"""More than the buffers of a socket hold: it is written only as fast as the engine reads."""


async def test_written_but_never_read() -> None:
    async with DuplexEngine("listen", time_scale=100) as engine, linked(engine) as one:
        (session,) = engine.sessions
        first = await one.link.append(unit(0))
        await one.link.update({})
        engine.stop_reading()
        # One message may be with the engine's reader already; it is not taken from a broken socket.
        lost = [await one.link.append(unit(number)) for number in range(1, 4)]
        engine.drop(session)
        engine.read_on()
        await one.until(lambda: one.of(LinkResumed))
        after = await one.link.append(unit(4))
        await one.link.update({})
        await engine.until(lambda: session.model.waiting == 0)
        got = [event_id for u in session.units for event_id in u.event_ids]
        (resumed,) = one.of(LinkResumed)
        assert got[0] == first and got[-1] == after
        assert set(lost) - set(got) <= set(resumed.unconfirmed)
        assert first not in resumed.unconfirmed


@pytest.mark.parametrize("loop", LOOPS)
def test_written_in_part(loop: str) -> None:
    run_on(loop, written_in_part())


async def written_in_part() -> None:
    """The rest of it never came, so the engine has not got it: it is written again, whole."""
    profile = MINICPM_VISION_LIKE
    async with DuplexEngine("listen", profile, time_scale=100) as engine, linked(engine) as one:
        (session,) = engine.sessions
        await one.link.update({})
        engine.stop_reading()
        append = asyncio.create_task(one.link.append(LARGE))
        await asyncio.sleep(0)
        engine.drop(session)
        engine.read_on()
        event_id = await append
        await one.link.update({})
        await engine.until(lambda: session.units)
        assert [u.event_ids for u in session.units] == [(event_id,)]
        (resumed,) = one.of(LinkResumed)
        assert resumed.unconfirmed == ()


async def test_a_socket_that_takes_nothing_is_given_up() -> None:
    profile = MINICPM_VISION_LIKE
    engine = DuplexEngine("listen", profile, time_scale=100)
    async with engine, linked(engine, write_s=0.2) as one:
        (session,) = engine.sessions
        engine.stop_reading()
        append = asyncio.create_task(one.link.append(LARGE))
        await one.until(lambda: one.events)
        engine.read_on()
        event_id = await append
        await engine.until(lambda: session.units)
        assert [u.event_ids for u in session.units] == [(event_id,)]


async def test_a_caller_who_leaves_takes_an_unwritten_append_along() -> None:
    async with DuplexEngine("listen", time_scale=100) as engine, linked(engine) as one:
        (session,) = engine.sessions
        engine.stop_reading()
        engine.faults.drop_units = []
        await one.link.append(unit(0))
        engine.drop(session)
        left = asyncio.create_task(one.link.append(unit(1)))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        engine.read_on()
        await one.until(lambda: one.of(LinkResumed))
        await one.link.append(unit(2))
        await engine.until(lambda: session.units and session.units[-1].end_ms == 3000)
        assert 2000 not in [u.end_ms for u in session.units]
