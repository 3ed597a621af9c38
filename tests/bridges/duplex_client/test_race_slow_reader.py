"""Nobody reads the events for a while: the engine is held back, nothing is lost, nothing grows."""

from __future__ import annotations

import pytest

from bridges.duplex_client import client
from bridges.duplex_client.link import AudioChunk, EngineEvent, LinkEnded, ResponseDone
from orchestrator.wire.audio import float_to_pcm16
from tests.bridges.duplex_client.linked import linked, unit
from tests.fakes.clock import VirtualClock, settle
from tests.fakes.duplex_engine import Act, DuplexEngine, Kind

ACT = Act(Kind.SPEAK, end=True, audio_ms=10_000, chunks=200)
QUEUE = 16


async def test_the_engine_is_held_back() -> None:
    slow = {"reading": False, "event_queue": QUEUE, "silence_s": 0.3}
    async with DuplexEngine([ACT], time_scale=100) as engine, linked(engine, **slow) as one:
        (session,) = engine.sessions
        for number in range(20):
            await one.link.append(unit(number))
        # All is said; most of it lies in sockets and with the engine.
        await engine.until(lambda: len(session.responses) == 20 and session.model.open is None)
        statistics = one.link.statistics()
        assert statistics["events_waiting_most"] <= QUEUE + 4
        assert statistics["phase"] == "live"
        told: list[EngineEvent] = []
        ended = 0
        async for event in one.link.events():
            told.append(event)
            ended += isinstance(event, ResponseDone)
            if ended == 20:
                break
        heard = b"".join(e.pcm for e in told if isinstance(e, AudioChunk))
        said = [float_to_pcm16(chunk) for r in session.responses for chunk in r.chunks]
        assert heard == b"".join(said)
        assert one.link.statistics()["events_waiting_most"] <= QUEUE + 4


async def test_a_close_does_not_wait_for_a_reader() -> None:
    slow = {"reading": False, "event_queue": QUEUE}
    async with DuplexEngine([ACT], time_scale=100) as engine, linked(engine, **slow) as one:
        (session,) = engine.sessions
        await one.link.append(unit(0))
        await engine.until(lambda: session.responses and session.model.open is None)
        assert await one.link.close("done")
        told = [event async for event in one.link.events()]
        assert told[-1] == LinkEnded("done", True) and len(told) <= QUEUE + 4


async def test_the_engine_is_not_silent_where_we_do_not_listen() -> None:
    clock = VirtualClock()
    slow = {"reading": False, "event_queue": QUEUE}
    async with DuplexEngine([ACT], time_scale=100) as engine, linked(engine, clock=clock, **slow) as one:
        (session,) = engine.sessions
        await one.link.append(unit(0))
        await engine.until(lambda: session.responses and session.model.open is None)
        while one.link.statistics()["events_waiting"] < QUEUE:
            await settle()
        await clock.advance(600)
        assert one.link.statistics()["phase"] == "live"
        assert one.link.statistics().get("events_lost", 0) == 0


async def test_few_but_large_events_hold_the_engine_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_WAITING_BYTES", 10_000)
    async with DuplexEngine([ACT], time_scale=100) as engine, linked(engine, reading=False) as one:
        (session,) = engine.sessions
        await one.link.append(unit(0))
        await engine.until(lambda: session.responses and session.model.open is None)
        chunk = session.responses[0].chunks[0].size * 2
        while one.link.statistics()["events_waiting_bytes"] < 10_000:
            await settle()
        await settle()
        assert one.link.statistics()["events_waiting_bytes"] <= 10_000 + 2 * chunk
        heard = 0
        async for event in one.link.events():
            heard += len(event.pcm) if isinstance(event, AudioChunk) else 0
            if isinstance(event, ResponseDone):
                break
        assert heard == sum(2 * each.size for each in session.responses[0].chunks)
        assert one.link.statistics()["events_waiting_bytes"] == 0
