"""The link ends while many wait: each is woken with a typed error, once, and none waits on."""

from __future__ import annotations

import asyncio

import pytest

from bridges.duplex_client.link import LinkEnded, LinkError
from tests.bridges.duplex_client.linked import Linked, linked, unit
from tests.fakes.duplex_engine import DuplexEngine, Faults

CODES = {"link_lost", "link_closed"}


async def woken(one: Linked, engine: DuplexEngine, end: object) -> None:
    """Commands of each kind wait, the link ends, and all of them are answered."""
    link = one.link
    waiting = [
        asyncio.create_task(work)
        for work in (
            link.update({}),
            link.commit(create_response=False),
            link.clear(),
            link.add_item({"type": "message"}),
            link.create_response({}),
            link.append(unit(0)),
            link.cancel(None),
        )
    ]
    await asyncio.sleep(0)
    await end() if callable(end) else None  # type: ignore[misc]
    async with asyncio.timeout(60):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    for result in results[:5]:
        assert isinstance(result, LinkError) and result.code in CODES
    await one.until(lambda: one.of(LinkEnded))
    with pytest.raises(LinkError):
        await link.append(unit(1))
    assert sum(isinstance(event, LinkEnded) for event in one.events) == 1


async def test_the_engine_dies() -> None:
    async with DuplexEngine("listen") as engine, linked(engine, resume_s=0.2, close_s=0.2) as one:
        engine.wedge()
        await woken(one, engine, engine.die)


async def test_the_session_is_closed_from_the_other_side() -> None:
    async with DuplexEngine("listen") as engine, linked(engine) as one:
        engine.running.clear()

        async def end() -> None:
            engine.running.set()
            engine.sessions[0].end("idle_ttl_expired", expired=True)

        await woken(one, engine, end)


async def test_our_own_close_gives_up_on_an_engine() -> None:
    async with DuplexEngine("listen", faults=Faults()) as engine, linked(engine, close_s=0.2) as one:
        engine.wedge()

        async def end() -> None:
            assert not await one.link.close("done")

        link = one.link
        waiting = asyncio.create_task(link.update({}))
        await asyncio.sleep(0)
        await end()
        with pytest.raises(LinkError):
            await waiting


async def test_one_links_end_is_not_anothers() -> None:
    async with DuplexEngine("listen") as engine, linked(engine) as one, linked(engine) as other:
        engine.sessions[0].end("idle_ttl_expired", expired=True)
        await one.until(lambda: one.of(LinkEnded))
        await other.link.update({})
        assert not other.events
