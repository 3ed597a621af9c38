"""A model that hears and speaks frame by frame: float samples at its own rate, a voice, no end of turns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from orchestrator.client import ClientError
from orchestrator.offline.command import Offline, run
from orchestrator.offline.drive import Played, PlayOptions, play
from orchestrator.wire.audio import Codec, read_wav, write_wav
from prompts.native_loader import native_profile
from tests.fakes.duplex_engine import PERSONAPLEX_LIKE
from tests.native.serving import ORDER, NativeServed
from tests.realtime.serving import eventually

FRAME = 1920


async def played(served: NativeServed, **more: Any) -> Played:
    session = {"voice": "NATF2.pt", "instructions": "You are a librarian."}
    options: dict[str, Any] = {"rate_hz": 24000, "codec": Codec.FLOAT32, "session": session, **more}
    return await play(
        [ORDER], PlayOptions(served.url, tail_ms=1000, quiet_s=2.0, drain_s=5.0, **options), served.clock
    )


def serving(folder: Path, script: str) -> NativeServed:
    return NativeServed(
        folder, script, like=PERSONAPLEX_LIKE, profile=native_profile("personaplex"), max_sessions=2
    )


async def test_packets_become_whole_frames_and_what_is_said_is_heard(tmp_path: Path) -> None:
    async with serving(tmp_path, "pattern:" + "L" * 10 + "S" * 15) as served:
        result = await played(served)
        assert result.ok, result.against
        (session,) = served.engines[0].sessions
        given = [unit.samples for unit in session.units if not unit.silence]
        assert set(given) == {FRAME}
        assert abs(sum(given) - 24 * result.timeline["duration_ms"]) <= FRAME
        assert served.engines[0].openings[0]["voice"] == "NATF2.pt"
        (answer, *_) = result.record.answers.values()
        assert answer.samples.any() and np.isfinite(answer.samples).all()
        assert result.timeline["unit_ms"] == 80 and len(result.timeline["units"]) == 30


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"rate_hz": 16000}, "invalid_session_config"),
        ({"codec": Codec.PCM16}, "invalid_session_config"),
        ({"session": {"voice": "../secret.pt"}}, "invalid_session_config"),
    ],
    ids=("rate", "format", "voice"),
)
async def test_what_does_not_fit_is_refused_before_an_engine_sees_it(
    tmp_path: Path, more: dict[str, Any], code: str
) -> None:
    async with serving(tmp_path, "listen") as served:
        with pytest.raises(ClientError) as refused:
            await played(served, **more)
        assert refused.value.code == code
        assert not served.engines[0].openings


async def test_a_connection_that_is_lost_ends_the_session_for_good(tmp_path: Path) -> None:
    """The engine cannot resume, so nobody can: the place is free at once, and a resume is told why."""
    async with serving(tmp_path, "listen") as served:
        address = served.url.replace("http", "ws") + "/v1/realtime?duplex=1"
        form = {"modalities": ["audio", "text"], "input_audio_format": "pcm_f32le", "sample_rate_hz": 24000}
        async with connect(address) as socket:
            await socket.send(json.dumps({"type": "session.update", "session": form}))
            created = json.loads(await socket.recv())
            assert created["type"] == "session.created" and "resume_token" not in created
            socket.transport.abort()
        await eventually(
            lambda: not served.engines[0].live and not served.core.registry.statistics()["slots"]
        )
        async with connect(address) as socket:
            named = {"session_id": created["session"]["id"], "resume_token": "t"}
            await socket.send(json.dumps({"type": "session.resume", **named}))
            refused = json.loads(await socket.recv())
        assert refused["error"]["code"] == "unsupported_session_resume"


async def test_recordings_are_sent_as_the_model_wants_them(tmp_path: Path) -> None:
    async with serving(tmp_path, "pattern:LLS") as served:
        (model,) = (await served.client.get("/v1/models")).json()["data"]
        assert model["audio_input"] == {"format": "pcm_f32le", "rate_hz": 24000, "exact": True}
        sent = tmp_path / "in.wav"
        sent.write_bytes(write_wav(ORDER.samples, ORDER.rate_hz))
        options = PlayOptions(served.url, session={"voice": "NATF2.pt"}, tail_ms=200, drain_s=2.0)
        code = await asyncio.to_thread(run, Offline((sent,), tmp_path / "out" / "OUT.wav", options))
        assert code == 0
        (session,) = served.engines[0].sessions
        assert {unit.samples for unit in session.units if not unit.silence} == {FRAME}
        samples, _ = read_wav((tmp_path / "out" / "OUT.wav").read_bytes())
        assert samples.any()
