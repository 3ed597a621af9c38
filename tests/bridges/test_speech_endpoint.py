"""The speech endpoint's bridge over a real socket: streaming, formats, faults, being cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from bridges.clause_speaker import RATE_HZ, ClauseSpeaker
from bridges.speech import SpeechError, SpokenChunk
from bridges.speech_endpoint import EndpointOptions, SpeechEndpoint
from tests.fakes.clock import VirtualClock
from tests.fakes.speech_server import CHAR_MS, SpeechServer

TEXT = "A dog barks. A cat sleeps. "


async def words_of(text: str) -> AsyncIterator[str]:
    for word in text.split(" "):
        yield word + " "


@asynccontextmanager
async def endpoint(
    server: SpeechServer, **options: Any
) -> AsyncIterator[tuple[ClauseSpeaker, SpeechEndpoint, VirtualClock]]:
    clock = VirtualClock()
    bridge = SpeechEndpoint(EndpointOptions(server.url, "tts", **options), clock)
    speaker = ClauseSpeaker(bridge, clock)
    yield speaker, bridge, clock
    await speaker.aclose()


async def said(speaker: ClauseSpeaker, text: str = TEXT, voice: str | None = None) -> list[SpokenChunk]:
    return [chunk async for chunk in speaker.speak(words_of(text), voice, "en")]


@pytest.mark.parametrize(("form", "rate"), [("pcm", 24000), ("pcm", 16000), ("wav", 22050), ("wav", 24000)])
async def test_clauses_are_asked_for_one_by_one_and_streamed(form: str, rate: int) -> None:
    async with SpeechServer(rate) as server:
        async with endpoint(server, format=form, rate_hz=rate, api_key="k", voice="ann") as (speaker, _, _):
            chunks = await said(speaker)
        assert [a["input"] for a in server.asked] == ["A dog barks.", "A cat sleeps."]
        assert server.asked[0]["voice"] == "ann" and server.asked[0]["stream"] is True
        assert server.keys == ["Bearer k"] * 2 and len(server.connections) == 1, "kept alive"
    total_ms = sum(len(chunk.pcm) for chunk in chunks) / 2 / RATE_HZ * 1000
    assert total_ms == pytest.approx(CHAR_MS * 25, abs=20)
    assert all(len(chunk.pcm) <= RATE_HZ * 2 // 5 for chunk in chunks)
    assert chunks[-1].chars == len(TEXT) + 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"status": 500}, "speech_refused"),
        ({"status": 401}, "speech_refused"),
        ({"content_type": "application/json"}, "speech_format"),
        ({"body": b"ID3" + b"\0" * 9000}, "speech_format"),
        ({"body": b""}, "speech_failed"),
        ({"break_after": 2}, "speech_unreachable"),
        ({"wait_after": 0}, "speech_timeout"),
        ({"wait_after": 2}, "speech_timeout"),
    ],
)
async def test_faults_are_told_by_code(fault: dict[str, Any], code: str) -> None:
    async with SpeechServer() as server:
        if "wait_after" in fault:
            server.hold(fault["wait_after"])
        for name, value in fault.items():
            setattr(server, name, value)
        waits = {"first_s": 0.5, "gap_s": 0.5} if "wait_after" in fault else {}
        async with endpoint(server, **waits) as (speaker, bridge, _):
            with pytest.raises(SpeechError) as told:
                await said(speaker)
            assert told.value.code == code and bridge.statistics()["requests_failed"] == 1
            assert speaker.statistics()["failed"] == 1


async def test_a_dead_endpoint_is_left_alone_for_a_while_and_then_asked_again() -> None:
    async with SpeechServer() as server, endpoint(server) as (speaker, bridge, clock):
        server.break_after = 0
        with pytest.raises(SpeechError, match="speech_unreachable"):
            await said(speaker)
        server.break_after = None
        with pytest.raises(SpeechError, match="speech_unavailable"):
            await said(speaker)
        assert len(server.asked) == 1
        await clock.advance(6.0)
        assert await said(speaker)
        assert bridge.state == "up"


async def test_who_is_cut_off_ends_the_request() -> None:
    async with SpeechServer() as server:
        server.hold(after=3)
        async with endpoint(server) as (speaker, _, _):
            async with aclosing(speaker.speak(words_of(TEXT), None, "en")) as chunks:
                await anext(chunks)
            async with asyncio.timeout(60):
                while not server.cut:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert len(server.asked) == 1 and speaker.statistics()["cut"] == 1
