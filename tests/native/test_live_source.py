"""A camera that the service reads by itself, in a session of a full-duplex engine."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.cameras import RtspCamera
from tests.fakes.duplex_engine import MINICPM_VISION_LIKE
from tests.native.serving import NativeServed
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

OPENING = {"modalities": ["text"], "extra_body": {"auto_response": True}}
HOSTS = {"sources": {"allow_hosts": ("127.0.0.1",)}}


async def test_a_camera_is_seen_and_heard_second_by_second(tmp_path: Path) -> None:
    """It lives in real time, as its camera does."""
    async with (
        RtspCamera() as camera,
        NativeServed(tmp_path, "pattern:L", like=MINICPM_VISION_LIKE, scale=1.0, **HOSTS) as served,
        Talker(served.url, opening=OPENING) as talker,
    ):
        place = f"/v1/sessions/{talker.session_id}/sources"
        added = await served.client.post(place, json={"source": camera.url})
        assert added.status_code == 201, added.text
        engine = served.engines[0].sessions[0]
        await eventually(lambda: sum(bool(unit.frames) for unit in engine.units) >= 4)
        assert all(unit.samples == 16000 for unit in engine.units), "whole seconds of sound"
        (told,) = (await served.client.get(place)).json()["data"]
        assert told["state"] == "playing" and told["frames"] >= 4 and told["error"] is None
        assert told["sound"] == "playing" and told["sound_ms"] >= 3000
        assert (await served.client.delete(f"{place}/{told['id']}")).status_code == 200
        assert not talker.of("error")
