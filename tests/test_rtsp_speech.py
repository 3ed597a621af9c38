"""Speech from a real RTSP server's microphone, heard by a real recogniser, becomes the session's query."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evals.recordings import recordings, word_errors
from orchestrator.wire.audio import Resampler
from tests.api.serving import Served
from tests.fakes.cameras import RtspCamera
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.hearing import VAD, real_ears
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

pytestmark = pytest.mark.timeout(300)
COMPLETED = "conversation.item.input_audio_transcription.completed"


def says(_: Seen) -> str:
    return "<silence>"


async def test_what_is_said_to_a_camera_becomes_the_query(tmp_path: Path) -> None:
    samples, said = recordings()["0870"]
    narrow = Resampler(16000, 8000).push(samples, last=True)
    speech = tmp_path / "speech.raw"
    speech.write_bytes((np.clip(narrow, -1, 1) * 32767).astype("<i2").tobytes())
    hosts = {"allow_hosts": ("127.0.0.1",)}
    async with (
        RtspCamera(speech=speech) as camera,
        FakeEngine(says) as engine,
        real_ears() as ears,
        Served(engine, tmp_path, ears=ears, sources=hosts) as served,
        Talker(served.url, opening={"turn_detection": VAD}) as t,
    ):
        place = f"/v1/sessions/{t.session_id}/sources"
        added = await served.client.post(place, json={"source": camera.url})
        assert added.status_code == 201, added.text
        heard = await t.until(COMPLETED)
        wrong, count = word_errors(said, heard["transcript"])
        assert wrong / count <= 0.2, (said, heard["transcript"])
        await eventually(lambda: served.memory(t.session_id).query == heard["transcript"])
        (told,) = (await served.client.get(place)).json()["data"]
        assert told["sound"] == "playing" and not told["sound_dropped"] and told["frames"] >= 2
        assert not t.of("error")
