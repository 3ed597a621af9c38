"""Ten sockets are lost in one session, at random points, some with events that never arrived.

The reader gets each event once and in order. Each append reaches the model at most once, and one that
did not reach it was reported as unconfirmed.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from bridges.duplex_client.link import (
    AudioChunk,
    LinkLost,
    LinkResumed,
    ResponseCreated,
    ResponseDone,
    SpokenText,
)
from orchestrator.wire.audio import float_to_pcm16
from tests.bridges.duplex_client.linked import LOOPS, Linked, linked, run_on, unit
from tests.fakes.duplex_engine import DuplexEngine, EngineSession

DROPS = 10


async def stream(one: Linked, appended: list[str], over: asyncio.Event) -> None:
    number = 0
    while not over.is_set():
        appended.append(await one.link.append(unit(number)))
        number += 1
        # The model is as fast as its clock: give it the time of a unit's audio.
        await asyncio.wait({asyncio.ensure_future(over.wait())}, timeout=0.005)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled(seed: int, loop: str) -> None:
    run_on(loop, ten_drops(seed))


async def ten_drops(seed: int) -> None:
    rng = random.Random(seed)
    async with DuplexEngine("pattern:LSSE", time_scale=100) as engine, linked(engine) as one:
        (session,) = engine.sessions
        appended: list[str] = []
        over = asyncio.Event()
        streaming = asyncio.create_task(stream(one, appended, over))
        for drop in range(1, DROPS + 1):
            after = rng.randint(0, 60)
            engine.drop(session, after=after, lose=rng.randint(0, min(after, 8)))
            await one.until(lambda drop=drop: len(one.of(LinkResumed)) == drop)  # type: ignore[misc]
        over.set()
        await streaming
        await one.link.update({})
        await engine.until(lambda: session.model.waiting == 0 and session.model.open is None)
        await one.until(lambda: len(one.of(ResponseDone)) == len(session.responses))
        assert len(one.of(LinkLost)) == len(one.of(LinkResumed)) == DROPS
        same_output(one, session)
        same_input(one, session, appended)
        assert session.generation == DROPS + 1


def same_output(one: Linked, session: EngineSession) -> None:
    responses = session.responses
    assert [event.response_id for event in one.of(ResponseCreated)] == [r.id for r in responses]
    assert [event.response_id for event in one.of(ResponseDone)] == [r.id for r in responses]
    for response in responses:
        chunks = [e.pcm for e in one.of(AudioChunk) if e.response_id == response.id]
        words = [e.text for e in one.of(SpokenText) if e.response_id == response.id]
        assert chunks == [float_to_pcm16(chunk) for chunk in response.chunks]
        assert "".join(words) == response.text


def same_input(one: Linked, session: EngineSession, appended: list[str]) -> None:
    got = [event_id for unit in session.units for event_id in unit.event_ids]
    assert len(got) == len(set(got))
    assert got == [event_id for event_id in appended if event_id in set(got)]
    unconfirmed = {event_id for event in one.of(LinkResumed) for event_id in event.unconfirmed}
    assert set(appended) - set(got) <= unconfirmed
