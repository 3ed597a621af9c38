"""A resume is refused: the token is not the session's any more, or the session is over, or another has it."""

from __future__ import annotations

import orjson
from websockets.asyncio.client import connect

from bridges.duplex_client.link import LinkEnded, LinkLost
from tests.bridges.duplex_client.linked import linked, unit
from tests.fakes.duplex_engine import NEMOTRON_LIKE, PERSONAPLEX_LIKE, DuplexEngine

AUTO = {"extra_body": {"auto_response": True}}


async def test_the_token_is_refused() -> None:
    async with DuplexEngine("listen") as engine, linked(engine) as one:
        engine.faults.forget_tokens = True
        engine.drop()
        await one.until(lambda: one.of(LinkEnded))
        assert one.events == [LinkLost("the connection broke"), LinkEnded("invalid_resume_token", False)]
        engine.faults.forget_tokens = False
        assert await one.link.close("tried again")
        assert engine.sessions[0].closed == "tried again"


async def test_the_session_expired_meanwhile() -> None:
    async with DuplexEngine("listen", NEMOTRON_LIKE) as engine, linked(engine, AUTO) as one:
        (session,) = engine.sessions
        session.channel.wire, wire = None, session.channel.wire
        session.end("disconnect_grace_expired", expired=True)
        assert wire is not None
        wire.abort()
        await one.until(lambda: one.of(LinkEnded))
        assert one.events[-1] == LinkEnded("session_resume_expired", True)


async def test_the_engine_says_that_it_expired() -> None:
    async with DuplexEngine("pattern:F", time_scale=100) as engine, linked(engine) as one:
        await one.link.append(unit(0))
        await one.until(lambda: one.of(LinkEnded))
        assert one.events[-1] == LinkEnded("request_cleanup", True)


async def test_another_client_takes_over() -> None:
    async with DuplexEngine("listen") as engine, linked(engine) as one:
        (session,) = engine.sessions
        async with connect(f"{engine.url}/v1/realtime?duplex=1") as other:
            resume = {
                "session_id": session.id,
                "resume_token": session.token,
                "last_received_server_event_seq": session.channel.seq,
            }
            await other.send(orjson.dumps({"type": "session.resume", **resume}).decode())
            assert orjson.loads(await other.recv())["type"] == "session.resumed"
            await one.until(lambda: one.of(LinkEnded))
            assert one.events[-1] == LinkEnded("session_replaced", False)
            assert session.attached and session.closed is None


async def test_an_engine_without_resume() -> None:
    session = {"input_audio_format": "pcm_f32le", "sample_rate_hz": 24000, **AUTO}
    async with DuplexEngine("listen", PERSONAPLEX_LIKE) as engine, linked(engine, session) as one:
        engine.drop()
        await one.until(lambda: one.of(LinkEnded))
        assert one.events == [LinkLost("the connection broke"), LinkEnded("link_lost", False)]
        await engine.until(lambda: engine.sessions[0].closed == "disconnect")


async def test_the_journal_is_too_old() -> None:
    engine = DuplexEngine("pattern:E", time_scale=100, journal_s=0.0)
    async with engine, linked(engine) as one:
        (session,) = engine.sessions
        engine.drop(session, after=2, lose=2)
        await one.link.append(unit(0))
        await one.until(lambda: one.of(LinkEnded))
        assert one.events[-1] == LinkEnded("journal_gap", False)
