"""The scripted duplex engine, driven by vLLM-Omni's own client: what that client accepts is the contract."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.fakes.duplex_engine import (
    MINICPM_LIKE,
    MINICPM_VISION_LIKE,
    NEMOTRON_LIKE,
    PERSONAPLEX_LIKE,
    QWEN_OMNI_LIKE,
    Act,
    DuplexEngine,
    EngineProfile,
    Faults,
    Kind,
    Unit,
)
from tests.fakes.duplex_engine.script import Samples
from tests.realtime.omni import DuplexClient, DuplexProtocolError, SessionConfig

SECOND = (1000).to_bytes(2, "little") * 16000
SILENCE = bytes(32000)


def client(engine: DuplexEngine, **config: Any) -> DuplexClient:
    extra = {"ref_audio": "data:audio/wav;base64,AAAA", **config}
    return DuplexClient(engine.url, model=engine.profile.model, config=SessionConfig(**extra))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Raw:
    """One socket, spoken to by hand."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []

    async def say(self, type_: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": type_, **fields}).decode())

    async def hear(self, *types: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                event = orjson.loads(await self.socket.recv())
                self.events.append(event)
                if event["type"] in types:
                    return event

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


@asynccontextmanager
async def raw(engine: DuplexEngine, session: dict[str, Any] | None = None) -> AsyncIterator[Raw]:
    async with connect(f"{engine.url}/v1/realtime?duplex=1", max_size=None) as socket:
        one = Raw(socket)
        if session is not None:
            await one.say("session.update", session={"ref_audio": "x", **session})
            await one.hear("session.updated")
        yield one


AUTO = {"extra_body": {"auto_response": True}}


async def test_the_public_client_holds_a_conversation() -> None:
    async with DuplexEngine("pattern:LSE", time_scale=100) as engine, client(engine) as talker:
        for _ in range(3):
            await talker.append_audio(SECOND)
        spoken = b""
        text = ""
        async for response in talker.responses():
            if response.decision == "listen":
                continue
            async for chunk in response.audio():
                spoken += chunk
            text = response.transcript
            await talker.ack_playback(2000, response_id=response.response_id)
            break
        (session,) = engine.sessions
        assert text == session.responses[0].text
        assert len(spoken) == 2 * session.responses[0].pcm.size
        await engine.until(lambda: session.acks)
        assert [unit.decision for unit in session.units] == ["L", "S", "E"]


async def test_the_public_client_is_refused_when_all_places_are_taken() -> None:
    async with DuplexEngine(max_sessions=1) as engine, client(engine):
        with pytest.raises(DuplexProtocolError) as refused:
            async with client(engine):
                pass
        assert refused.value.code == "resource_exhausted"


async def test_the_public_client_resumes() -> None:
    async with DuplexEngine("pattern:E", time_scale=100) as engine, client(engine) as talker:
        (session,) = engine.sessions
        engine.drop(session, after=3, lose=2)
        await talker.append_audio(SECOND)
        async for response in talker.responses():
            async for _ in response.audio():
                pass
            assert response.transcript == session.responses[0].text
            break
        assert session.generation == 2


async def test_the_order_of_a_response() -> None:
    async with DuplexEngine([Act(Kind.SPEAK, end=True, chunks=2)]) as engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        await one.hear("rate_limits.updated")
        assert one.types[3:] == [
            "response.created",
            "conversation.item.added",
            "conversation.item.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.speak",
            "response.output_audio.delta",
            "response.output_audio_transcript.delta",
            "response.output_audio.delta",
            "response.output_audio_transcript.delta",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
            "rate_limits.updated",
        ]
        numbers = [event["server_event_seq"] for event in one.events if "server_event_seq" in event]
        assert numbers == list(range(1, len(one.events)))


async def test_each_commit_of_this_version_sends_the_earlier_audio_again() -> None:
    """In auto mode; a later version does not."""
    for version, expected in (("0.30.0", [16000, 32000, 48000]), ("0.31.0", [16000] * 3)):
        async with DuplexEngine("listen", version=version) as engine, raw(engine, AUTO) as one:
            for _ in range(3):
                await one.say("input_audio_buffer.append", audio=b64(SECOND[:16000]))
                await one.say("input_audio_buffer.commit")
                await one.hear("response.listen")
            assert [unit.samples for unit in engine.sessions[0].units] == expected


async def test_at_most_one_unit_leaves_with_an_append() -> None:
    async with DuplexEngine("listen") as engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", audio=b64(SECOND * 3))
        await one.hear("response.listen")
        assert len(engine.sessions[0].units) == 1
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        await one.hear("response.listen")
        assert len(engine.sessions[0].units) == 2


async def test_silence_continues_an_open_response_until_its_limit() -> None:
    async with DuplexEngine("pattern:S", time_scale=1000) as engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        listen = await one.hear("response.listen")
        assert listen["response"]["metadata"]["reason"] == "continuation_limit"
        await one.hear("response.done")
        units = engine.sessions[0].units
        assert [unit.silence for unit in units] == [False] + [True] * 64


async def test_a_frame_alone() -> None:
    frame = b64(b"\xff\xd8\xff")
    async with DuplexEngine("listen", MINICPM_LIKE) as engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", video_frames=[frame])
        assert (await one.hear("error"))["error"]["code"] == "invalid_input_modality"
    async with DuplexEngine("listen", MINICPM_VISION_LIKE) as engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", video_frames=[frame])
        await one.hear("response.listen")
        assert [unit.modality for unit in engine.sessions[0].units] == ["vision"]


@pytest.mark.parametrize(
    ("profile", "session", "code"),
    [
        (MINICPM_LIKE, {"ref_audio": None}, "ref_audio_required"),
        (MINICPM_LIKE, {"input_audio_format": "mp3"}, "invalid_session_config"),
        (MINICPM_LIKE, {"turn_detection": {"type": "semantic_vad"}}, "invalid_session_config"),
        (MINICPM_LIKE, {"extra_body": {"ref_audio_data": 1}}, "invalid_duplex_runtime_config"),
        (PERSONAPLEX_LIKE, {"input_audio_format": "pcm16"}, "invalid_session_config"),
        (
            PERSONAPLEX_LIKE,
            {"input_audio_format": "pcm_f32le", "voice": "a/b.pt"},
            "invalid_session_config",
        ),
        (NEMOTRON_LIKE, {}, "unsupported_nemotron_duplex_mode"),
        (QWEN_OMNI_LIKE, AUTO, "invalid_duplex_runtime_config"),
    ],
)
async def test_openings_that_are_refused(profile: EngineProfile, session: dict[str, Any], code: str) -> None:
    async with DuplexEngine(profile=profile) as engine, raw(engine) as one:
        await one.say("session.update", session={"ref_audio": "x", **session})
        assert (await one.hear("error"))["error"]["code"] == code
        assert not engine.live


async def test_refused_in_the_flat_shape() -> None:
    faults = Faults(refuse="multi_api_duplex_unsupported", refuse_flat=True, refuse_times=1)
    async with DuplexEngine(faults=faults) as engine:
        async with raw(engine) as one:
            await one.say("session.update", session={"ref_audio": "x"})
            assert (await one.hear("error"))["code"] == "multi_api_duplex_unsupported"
        async with raw(engine, AUTO):
            assert len(engine.live) == 1


async def test_a_detector_commits_a_turn() -> None:
    vad = {"turn_detection": {"type": "server_vad", "silence_duration_ms": 500}}
    async with DuplexEngine("pattern:E") as engine, raw(engine, vad) as one:
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        await one.hear("input_audio_buffer.speech_started")
        await one.say("input_audio_buffer.append", audio=b64(SILENCE), is_speech=True)
        await one.hear("input_audio_buffer.speech_stopped")
        await one.hear("response.done")
        assert engine.sessions[0].units[0].creates


async def test_a_detector_interrupts() -> None:
    vad = {"turn_detection": {"type": "server_vad"}, **AUTO}
    faults = Faults(chunk_ms=1000)
    async with DuplexEngine("pattern:S", faults=faults) as engine, raw(engine, vad) as one:
        await one.say("input_audio_buffer.append", audio=b64(SILENCE))
        await one.hear("response.output_audio.delta")
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        done = await one.hear("response.done")
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}


async def test_a_session_without_a_socket_expires() -> None:
    engine = DuplexEngine("listen", grace_s=0.05, reaper_s=0.01)
    async with engine:
        async with raw(engine, AUTO):
            engine.drop()
        await engine.until(lambda: not engine.live)
        assert engine.sessions[0].closed == "disconnect_grace_expired"


async def test_a_close_keeps_the_place_until_it_is_done() -> None:
    faults = Faults(close_ms=100)
    engine = DuplexEngine("listen", max_sessions=1, faults=faults, time_scale=1)
    async with engine, raw(engine, AUTO) as one:
        await one.say("session.close", reason="x")
        async with raw(engine) as other:
            await other.say("session.update", session={"ref_audio": "x"})
            assert (await other.hear("error"))["error"]["code"] == "resource_exhausted"
        await one.hear("session.closed")
        async with raw(engine, AUTO):
            assert len(engine.live) == 1


async def test_a_journal_that_overflows() -> None:
    engine = DuplexEngine("pattern:S", journal_bytes=20_000, time_scale=1000)
    async with engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        await one.hear("session.resync_required")
        later = await one.hear("response.done")
        assert "server_event_seq" not in later
        assert one.types.count("session.resync_required") == 1


async def test_a_voice_of_its_own() -> None:
    def voice(unit: Unit, chunk: int, samples: int) -> Samples:
        return np.full(samples, (1 + chunk) / 8, np.float32)

    act = Act(Kind.SPEAK, end=True, chunks=2)
    async with DuplexEngine([act], voice=voice) as engine, raw(engine, AUTO) as one:
        await one.say("input_audio_buffer.append", audio=b64(SECOND))
        await one.hear("response.done")
        deltas = [e["delta"] for e in one.events if e["type"] == "response.output_audio.delta"]
        assert [base64.b64decode(delta)[:2] for delta in deltas] == [b"\x00\x10", b"\x00\x20"]


async def test_plain_http() -> None:
    async with DuplexEngine() as engine, httpx.AsyncClient() as http:
        base = engine.url.replace("ws", "http")
        assert (await http.get(f"{base}/health")).status_code == 200
        models = (await http.get(f"{base}/v1/models")).json()
        assert models["data"][0]["id"] == engine.profile.model
        assert (await http.get(f"{base}/harness/status")).json()["sessions"] == 0
        assert (await http.get(f"{base}/elsewhere")).status_code == 404


async def test_as_a_program() -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.duplex_engine", "--port", "0", "--script", "listen",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        async with asyncio.timeout(60):
            ready = (await program.stdout.readline()).decode().split()
        assert ready[0] == "READY"
        async with connect(ready[1]) as socket:
            await socket.send('{"type": "session.update", "session": {"ref_audio": "x"}}')
            assert orjson.loads(await socket.recv())["type"] == "session.created"
    finally:
        program.terminate()
        await program.wait()
