"""What the page can show besides a camera: a video with its sound, the screen, a picture."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from orchestrator.session.backend import Capabilities
from tests.fakes.clips import make_talking_clip
from tests.fakes.pictures import png
from tests.page.browser import Visit
from tests.realtime.serving import VOICE, Scripted, eventually

pytestmark = pytest.mark.page

HEARS = replace(VOICE, input_modes=("append_audio_chunk",))
READS = Capabilities(chunk_period_ms=1000, optional_input_modalities=("video",))
PITCH_HZ = 440


async def choose(visit: Visit, *files: Any) -> None:
    """As a hand does it."""
    async with visit.page.expect_file_chooser() as chooser:
        await visit.click("File")
    await (await chooser.value).set_files(*files)


def shown(visit: Visit) -> list[Image.Image]:
    frames = [f for e in visit.of("input_audio_buffer.append") for f in e.get("video_frames", [])]
    return [Image.open(io.BytesIO(base64.b64decode(frame))) for frame in frames]


def heard(visit: Visit) -> list[np.ndarray[Any, np.dtype[np.int16]]]:
    return [
        np.frombuffer(base64.b64decode(e["audio"]), "<i2")
        for e in visit.of("input_audio_buffer.append")
        if "audio" in e
    ]


def pitch(samples: np.ndarray[Any, np.dtype[np.int16]]) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    return float(spectrum.argmax()) * 16000 / samples.size


@pytest.mark.parametrize("before", [True, False])
async def test_a_video_is_shown_with_its_sound(tmp_path: Path, before: bool) -> None:
    """Chosen before the session begins, or within it; no microphone is asked for."""
    clip = make_talking_clip(tmp_path / "clip.webm", seconds=8, pitch_hz=PITCH_HZ)
    async with Scripted(HEARS) as server, Visit(server.url, tmp_path) as visit:
        await visit.ready()
        if before:
            await choose(visit, clip)
            assert await visit.page.get_by_role("button", name="File sound").is_hidden()
        await visit.start()
        if not before:
            await choose(visit, clip)
        await visit.page.get_by_role("button", name="File sound", pressed=True).wait_for()
        loud = await eventually(lambda: [s for s in heard(visit) if np.abs(s).max() > 3000][:4] or None)
        assert all(s.size == 3200 for s in heard(visit)), "200 ms at a time"
        await eventually(lambda: len([s for s in heard(visit) if np.abs(s).max() > 3000]) >= 4)
        loud = [s for s in heard(visit) if np.abs(s).max() > 3000]
        assert abs(pitch(np.concatenate(loud[1:4])) - PITCH_HZ) < 10
        riding = [e for e in visit.of("input_audio_buffer.append") if "video_frames" in e and "audio" in e]
        assert await eventually(
            lambda: riding or [e for e in visit.sent if "audio" in e and "video_frames" in e]
        )
        await eventually(lambda: any(unit.frames and unit.pcm for unit in server.appended()))
        assert not await visit.page.evaluate("document.getElementById('preview').muted")
        await visit.click("File sound")
        quiet = len(heard(visit))
        alone = await eventually(
            lambda: [e for e in visit.sent if "video_frames" in e and "audio" not in e] or None
        )
        assert alone and len(heard(visit)) == quiet, "its pictures go up without it"
        await visit.shot("file")
        await visit.page.wait_for_selector("#view[data-showing=nothing]")  # it is over
        assert await visit.page.get_by_role("button", name="File sound").is_hidden()
        assert await visit.page.evaluate("document.getElementById('preview').muted")
        assert not any(e["type"].endswith(".commit") for e in visit.sent)


async def test_the_sound_of_a_video_and_the_microphone_are_heard_together(tmp_path: Path) -> None:
    """The microphone hums at 220 Hz. Mute is the microphone's."""
    clip = make_talking_clip(tmp_path / "clip.webm", seconds=12, pitch_hz=1000)
    async with Scripted(HEARS) as server, Visit(server.url, tmp_path) as visit:
        await visit.start()
        await visit.click("Microphone")
        await eventually(lambda: len(heard(visit)) >= 2)
        await choose(visit, clip)

        def both() -> bool:
            samples = np.concatenate(heard(visit)[-3:]).astype(float)
            spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
            at = [spectrum[round(hz * samples.size / 16000) - 3 :][:7].max() for hz in (220, 1000)]
            return bool(min(at) > 20 * np.median(spectrum))

        await eventually(both)
        count = len(heard(visit))
        await visit.click("Mute")
        await eventually(lambda: len(heard(visit)) >= count + 4)
        assert abs(pitch(np.concatenate(heard(visit)[-2:])) - 1000) < 10


async def test_a_model_without_ears_is_shown_the_pictures_alone(tmp_path: Path) -> None:
    clip = make_talking_clip(tmp_path / "clip.webm", seconds=4)
    async with Scripted(READS) as server, Visit(server.url, tmp_path) as visit:
        await visit.start()
        await choose(visit, clip)
        pictures = await eventually(lambda: shown(visit) if len(shown(visit)) >= 3 else None)
        levels = [float(np.asarray(each.convert("L")).mean()) for each in pictures]
        assert levels == sorted(levels) and levels[-1] > levels[0] + 20, "it plays at its own speed"
        assert not heard(visit)
        assert await visit.page.get_by_role("button", name="File sound").is_hidden()
        assert await visit.page.evaluate("document.getElementById('preview').muted")


async def test_a_picture_stays_until_it_is_taken_away(tmp_path: Path) -> None:
    picture = {"name": "sign.png", "mimeType": "image/png", "buffer": png(3, 320, 200)}
    async with Scripted(READS) as server, Visit(server.url, tmp_path) as visit:
        await visit.start()
        await choose(visit, picture)
        pictures = await eventually(lambda: shown(visit) if len(shown(visit)) >= 2 else None)
        assert {each.size for each in pictures} == {(320, 200)}
        await visit.page.wait_for_selector("#still:visible")
        await visit.click("File")
        await visit.page.wait_for_selector("#view[data-showing=nothing]")


async def test_what_is_no_picture_is_said_so(tmp_path: Path) -> None:
    noise = {"name": "noise.webm", "mimeType": "video/webm", "buffer": b"no video at all" * 100}
    async with Scripted(READS) as server, Visit(server.url, tmp_path) as visit:
        await visit.start()
        await choose(visit, noise)
        await visit.reads("#notices", "could not be used")
        assert await visit.page.locator("#view[data-showing=nothing]").count() == 1


async def test_the_screen_is_shown_until_it_is_taken_away(tmp_path: Path) -> None:
    """By the page's own button, or by the browser's."""
    async with Scripted(READS) as server, Visit(server.url, tmp_path) as visit:
        await visit.start()
        await visit.click("Screen")
        await visit.page.wait_for_selector("#view[data-showing=screen]")
        pictures = await eventually(lambda: shown(visit) if len(shown(visit)) >= 2 else None)
        assert all(max(each.size) <= 640 for each in pictures)
        await eventually(lambda: len([u for u in server.appended() if u.frames and not u.pcm]) >= 2)
        await visit.shot("screen")
        await visit.click("Screen")
        await visit.page.wait_for_selector("#view[data-showing=nothing]")
        await visit.click("Screen")
        await visit.page.wait_for_selector("#view[data-showing=screen]")
        await visit.page.evaluate(
            "document.getElementById('preview').srcObject.getTracks()[0].dispatchEvent(new Event('ended'))"
        )
        await visit.page.wait_for_selector("#view[data-showing=nothing]")
        assert await visit.page.get_by_role("button", name="Screen", pressed=False).count() == 1
