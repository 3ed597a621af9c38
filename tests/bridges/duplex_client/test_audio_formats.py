"""Audio of every format that the contract lists becomes PCM16."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from bridges.duplex_client.link import AudioChunk, EngineFault
from orchestrator.wire.audio import Codec, float_to_g711, float_to_pcm16, pcm16_to_float, write_wav
from tests.bridges.duplex_client.saying import Talk

SOUND = (0.5 * np.sin(np.arange(480) / 8)).astype(np.float32)
PCM = float_to_pcm16(SOUND)


def heard(session: dict[str, object], data: bytes, **fields: object) -> AudioChunk | EngineFault:
    talk = Talk()
    talk.hear("session.updated", session={"id": "duplex-1", **session})
    talk.respond()
    delta = base64.b64encode(data).decode()
    (event,) = talk.hear("response.output_audio.delta", response_id="r1", delta=delta, **fields)
    assert isinstance(event, AudioChunk | EngineFault)
    return event


@pytest.mark.parametrize("name", ["pcm16", "pcm_s16le", "s16le", "pcm", "audio/pcm"])
def test_pcm(name: str) -> None:
    event = heard({}, PCM, format=name, sample_rate_hz=22050)
    assert event == AudioChunk("r1", PCM, 22050)


@pytest.mark.parametrize("name", ["wav", "audio/wav"])
def test_wav_says_its_own_rate(name: str) -> None:
    event = heard({}, write_wav(SOUND, 16000), format=name, sample_rate_hz=24000)
    assert event == AudioChunk("r1", PCM, 16000)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("g711_ulaw", Codec.ULAW),
        ("g711_alaw", Codec.ALAW),
        ("audio/pcmu", Codec.ULAW),
        ("audio/pcma", Codec.ALAW),
    ],
)
def test_g711(name: str, codec: Codec) -> None:
    event = heard({}, float_to_g711(SOUND, codec), format=name)
    assert isinstance(event, AudioChunk) and event.rate_hz == 8000
    assert np.abs(pcm16_to_float(event.pcm) - SOUND).max() < 0.03


def test_what_a_delta_leaves_out_the_session_said() -> None:
    session = {
        "output_audio_format": "g711_ulaw",
        "audio": {"output": {"format": {"type": "audio/pcmu"}, "sample_rate_hz": 16000}},
    }
    event = heard(session, float_to_g711(SOUND, Codec.ULAW))
    assert isinstance(event, AudioChunk) and event.rate_hz == 16000 and len(event.pcm) == len(PCM)


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (PCM[:-1], {}),
        (PCM, {"format": "mp3"}),
        (PCM, {"format": 7}),
        (PCM, {"format": "wav"}),
        (PCM, {"sample_rate_hz": "fast"}),
        (PCM, {"sample_rate_hz": 1}),
        (PCM, {"metadata": {"audio_text_marks": 1}}),
        (PCM, {"metadata": {"audio_text_marks": [{"text_chars": -1, "audio_end_ms": 3}]}}),
    ],
)
def test_malformed(data: bytes, fields: dict[str, object]) -> None:
    event = heard({}, data, **fields)
    assert isinstance(event, EngineFault) and event.code == "bad_engine_event"
