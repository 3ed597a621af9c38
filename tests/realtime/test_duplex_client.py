"""vLLM-Omni's public duplex client against the running server, as its users have it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.session.backend import Action, AudioDelta, Decision, Metrics, TextDelta, TurnEnd
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Script, Seen
from tests.fakes.pictures import jpeg
from tests.realtime.omni import (
    DuplexClient,
    DuplexProtocolError,
    DuplexSessionClosedError,
    EventCollector,
    ReconnectPolicy,
    ResponseHandle,
    SessionConfig,
    image_data_url,
)
from tests.realtime.serving import MODEL, VOICE, Scripted, eventually
from tests.realtime.talker import Talker, pcm16, resumed

TEXT = SessionConfig(modalities=("text",))
AT_ONCE = ReconnectPolicy(backoff_s=(0.01, 0.05))
NUMBERS = " ".join(map(str, range(80)))


def counts(seen: Seen) -> str:
    """A long answer at first, then short ones."""
    return f"<response> {NUMBERS}" if seen.tick == 0 else f"<response> Then {seen.tick}."


@asynccontextmanager
async def talking(
    folder: Path, script: Script = counts, per_token_s: float = 0.0
) -> AsyncIterator[tuple[Served, Any]]:
    async with (
        FakeEngine(script, pace=Pace(per_token_s=per_token_s)) as engine,
        Served(engine, folder, decision={"gate": False}) as served,
        DuplexClient(at(served.url), model=engine.model, config=TEXT, reconnect=AT_ONCE) as client,
    ):
        yield served, client


def at(url: str) -> str:
    return "ws" + url.removeprefix("http")


async def ask(client: Any, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    await client.send({"type": "conversation.item.create", "item": item})


async def show(client: Any, n: int) -> None:
    """One frame and no sound, as its users send pictures."""
    await client.append_audio(b"", video_frames=[image_data_url(jpeg(n, 224, 224))])


async def next_response(client: Any) -> ResponseHandle:
    async with asyncio.timeout(60):
        async for response in client.responses():
            if response.decision != "listen":
                return response
    raise AssertionError("no response")


async def test_frames_and_a_question_are_answered_in_words(tmp_path: Path) -> None:
    async with talking(tmp_path) as (served, client):
        assert client.session_id.startswith("duplex-") and client.resume_token
        assert client.session_info["capabilities"]["chunk_period_ms"] == 1000
        collector = EventCollector()
        collecting = asyncio.create_task(collector.consume(client))
        await ask(client, "what do you see?")
        first = await next_response(client)
        await first.wait(60)
        assert first.text == NUMBERS and first.decision == "speak"
        await show(client, 1)
        second = await next_response(client)
        await second.wait(60)
        assert second.text.startswith("Then")
        assert served.core.memory_of(client.session_id).frames == 1
        await client.close()
        await asyncio.wait_for(collecting, 60)
        assert not collector.errors()
        assert collector.response_text(first.response_id) == NUMBERS
        assert collector.response_is_done(second.response_id)
        summary = collector.timing_summary(after_s=0.0, response_id=first.response_id)
        assert summary["stages"]["0"]["source"] == "engine_stage_metrics"
    await eventually(lambda: not served.core.registry.statistics()["open"])


async def test_a_response_is_cancelled(tmp_path: Path) -> None:
    async with talking(tmp_path, per_token_s=0.1) as (_, client):
        await ask(client, "count")
        response = await next_response(client)
        await client.cancel_response(response.response_id)
        await response.wait(60)
        assert response.done_event.raw["response"]["status"] == "cancelled"
        assert NUMBERS.startswith(response.text) and response.text != NUMBERS
        await ask(client, "and then?")
        after = await next_response(client)
        await after.wait(60)
        assert after.text.startswith("Then")


async def test_a_dropped_socket_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, per_token_s=0.01) as (served, client):
        seqs: list[int] = []

        async def note() -> None:
            async for event in client.events():
                if event.server_event_seq is not None:
                    seqs.append(event.server_event_seq)

        noting = asyncio.create_task(note())
        await asyncio.sleep(0)
        token = client.resume_token
        await ask(client, "count")
        response = await next_response(client)
        for _ in range(3):
            client._ws.transport.abort()
            await client.wait_for("connection.resumed", timeout_s=60)
        await response.wait(60)
        assert response.text == NUMBERS
        assert client.resume_token != token
        assert served.core.registry.statistics()["open"] == 1
        await client.close()
        await asyncio.wait_for(noting, 60)
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_a_takeover_ends_the_displaced_client(tmp_path: Path) -> None:
    """It tries to come back with a token that is void, and gives up; the winner notices nothing."""
    async with talking(tmp_path) as (served, client):
        winner = Talker(served.url)
        winner.session, winner.token = {"id": client.session_id}, client.resume_token
        winner = await resumed(served.url, winner, after=client._last_server_event_seq)
        await winner.until("session.resumed")
        with pytest.raises(DuplexSessionClosedError):
            await client.wait_for("session.closed", timeout_s=60)
        await winner.ask("what?")
        await winner.until("response.done")
        await winner.send("session.close")
        assert await winner.closed() == (1000, "client_close")


async def test_a_refused_opening_is_told_by_its_code(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path) as served:
        with pytest.raises(DuplexProtocolError) as refused:
            await DuplexClient(at(served.url), model="nobody").__aenter__()
        assert refused.value.code == "model_not_found"


def speaking_to(server: Scripted, config: Any) -> Any:
    return DuplexClient(at(server.url), model=MODEL, config=config)


async def test_speech_is_streamed_heard_and_acknowledged() -> None:
    """A spoken turn with a model that hears and speaks."""
    pcm = base64.b64decode(pcm16(600))
    config = SessionConfig(auto_response=False)
    async with Scripted(VOICE) as server, speaking_to(server, config) as client:
        collector = EventCollector()
        collecting = asyncio.create_task(collector.consume(client))
        await asyncio.sleep(0)
        await client.stream_pcm(pcm)
        await client.commit(create_response=True)
        await eventually(server.asked)
        (fence,) = server.asked()
        server.backend().emit(
            Decision(fence, 1, Action.RESPONSE, 0.9),
            TextDelta(fence, "Hello."),
            AudioDelta(fence, bytes(48000), 24000, ((6, 1000),)),
            AudioDelta(fence, bytes(24000), 24000),
            Metrics(fence, {"0": {"num_tokens_in": 5, "num_tokens_out": 2}}),
            TurnEnd(fence),
        )
        response = await next_response(client)
        chunks = []
        async for chunk in response.audio():
            chunks.append(chunk)
            await client.ack_playback(response.played_ms)
        assert sum(map(len, chunks)) == 72000 and response.transcript == "Hello."
        assert response.played_ms == 1500
        await eventually(lambda: collector.count("playback.acknowledged") == 2)
        await client.close()
        await asyncio.wait_for(collecting, 60)
        assert len(collector.audio_bytes(response.response_id)) == 72000
        assert not collector.errors()
        summary = collector.timing_summary(after_s=0.0, response_id=response.response_id)
        assert summary["request_metrics"]["audio_duration_ms"] == 1500
        assert summary["stages"]["0"]["source"] == "engine_stage_metrics"


async def test_a_model_that_listens_makes_no_response() -> None:
    async with Scripted(VOICE) as server, speaking_to(server, SessionConfig()) as client:
        collector = EventCollector()
        collecting = asyncio.create_task(collector.consume(client))
        await client.append_audio(base64.b64decode(pcm16(1000)))
        await eventually(server.appended)
        server.backend().stay_silent()
        await client.wait_for("response.listen", timeout_s=60)
        await client.close()
        await asyncio.wait_for(collecting, 60)
        assert collector.count("response.listen") == 1 and not collector.count("response.created")
