"""The page in front of models that hear and speak: what goes up, what is played, what is told of it."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.session.backend import AudioDelta, TextDelta, TurnEnd
from orchestrator.session.fence import Fence
from orchestrator.session.units import InputUnit
from tests.api.serving import Served
from tests.fakes.duplex_engine import MINICPM_VISION_LIKE
from tests.fakes.ears import ScriptedTranscriber, ears
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speaker import CHAR_MS, ScriptedSpeaker, tone
from tests.native.serving import NativeServed, reference, spoken
from tests.page.browser import Visit, wav
from tests.realtime.serving import VOICE, Scripted, eventually

pytestmark = pytest.mark.page

HEARS = replace(VOICE, input_modes=("append_audio_chunk",))
"""A model that hears by itself: no detector of the server's interrupts it."""

STORY = "A long story, that goes on and on, and never seems to come to its end at all, " * 3
HI = "I see a sun."
APART_MS = 500
"""Between two pictures at the least: one a second, where a late one is followed by one in time."""


def tells(seen: Seen) -> str:
    return f" {STORY if 'story' in str(seen.body) else HI}" if seen.continued else "<silence>"


def appends(visit: Visit, what: str) -> list[dict[str, Any]]:
    return [event for event in visit.of("input_audio_buffer.append") if what in event]


def sounding(server: Scripted) -> int:
    """Units of the newest session that had sound."""
    return sum(unit.pcm is not None and len(unit.pcm) > 0 for unit in server.appended())


def pictures_alone(server: Scripted) -> list[InputUnit]:
    return [unit for unit in server.appended() if not unit.pcm]


async def test_an_answer_is_heard_to_the_last_sample_and_acknowledged(tmp_path: Path) -> None:
    async with (
        FakeEngine(tells, pace=Pace()) as engine,
        Served(engine, tmp_path, speaker=ScriptedSpeaker()) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.start()
        await visit.ask("what is there?")
        await visit.page.wait_for_selector("#badge-speak:visible")
        await visit.reads("#caption", HI)
        await visit.shot("speaking")
        total = CHAR_MS * len(HI)
        acks = await eventually(lambda: [a for a in visit.of("playback.ack") if a["played_ms"] >= total])
        assert acks[-1]["played_ms"] == total, "no more than there was"
        told = [a["played_ms"] for a in visit.of("playback.ack")]
        assert told == sorted(told) and len(told) > 2, "told as it is heard"
        sound = sum(
            len(base64.b64decode(e["delta"])) for e in visit.got if e["type"] == "response.output_audio.delta"
        )
        assert sound == 48 * total
        (session,) = served.core.registry.sessions()
        await eventually(lambda: session.view()["playback"]["committed_ms"] == total)
        await visit.page.wait_for_selector("#badge-speak", state="hidden")


async def test_an_interruption_is_silence_at_once_and_what_was_heard(tmp_path: Path) -> None:
    async with (
        FakeEngine(tells, pace=Pace()) as engine,
        Served(engine, tmp_path, speaker=ScriptedSpeaker()) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.start()
        await visit.ask("tell me a story")
        await eventually(lambda: any(a["played_ms"] > 500 for a in visit.of("playback.ack")))
        await visit.click("Interrupt")
        await visit.page.wait_for_selector("#badge-speak", state="hidden")
        await visit.reads("#said .assistant", "(interrupted)")
        kinds = [e["type"] for e in visit.sent]
        assert len(visit.of("response.cancel")) == 1
        heard = visit.of("playback.ack")[-1]["played_ms"]
        assert 500 < heard < CHAR_MS * len(STORY) / 2
        assert kinds[kinds.index("response.cancel") - 1] == "playback.ack", "what was heard, then the cancel"
        memory = served.memory(served.core.registry.sessions()[0].id)
        lines = await eventually(lambda: [x.text for x in memory.parts.qa.recent if x.kind != "query"])
        assert STORY.startswith(lines[0]) and abs(len(lines[0]) * CHAR_MS - heard) <= 2 * CHAR_MS
        await asyncio.sleep(0.3)
        assert visit.of("playback.ack")[-1]["played_ms"] == heard, "nothing goes on behind it"


async def test_sound_goes_up_every_200_ms_also_under_an_answer_and_nothing_commits(tmp_path: Path) -> None:
    async with Scripted(HEARS) as server, Visit(server.url, tmp_path) as visit:
        await visit.ready()
        await visit.click("Camera")
        await visit.start()
        await visit.click("Microphone")
        await eventually(lambda: sounding(server) >= 3)
        fence = Fence()
        server.backend().emit(TextDelta(fence, "x" * 80), AudioDelta(fence, tone(30_000), 24000))
        await visit.page.wait_for_selector("#badge-speak:visible")
        before = len(appends(visit, "audio"))
        await eventually(lambda: len(appends(visit, "audio")) >= before + 10)
        assert await visit.page.locator("#badge-speak").is_visible(), "the assistant speaks all the while"
        for event in appends(visit, "audio"):
            assert event["duration_ms"] == 200 and len(base64.b64decode(event["audio"])) == 2 * 3200
        await eventually(lambda: server.heard() >= 3200 * (before + 9))
        loud = [a for a in appends(visit, "audio") if any(base64.b64decode(a["audio"]))]
        assert loud, "the microphone is heard"
        times = [e["frame_times_ms"][0] for e in appends(visit, "video_frames")]
        assert times and all(b - a > APART_MS for a, b in pairwise(times)), "one a second, at the most"
        assert not any(e["type"].endswith(".commit") for e in visit.sent)
        assert not [call for call in server.backend().calls if call.method == "commit"]
        assert not [e for e in visit.sent if "is_speech" in e or "vad" in e], "the browser judges nothing"
        server.backend().emit(TurnEnd(fence))


async def test_muted_no_sound_goes_up_and_each_second_a_picture(tmp_path: Path) -> None:
    async with Scripted(HEARS) as server, Visit(server.url, tmp_path) as visit:
        await visit.ready()
        await visit.click("Camera")
        await visit.start()
        await visit.click("Microphone")
        await eventually(lambda: any("audio" in e for e in appends(visit, "video_frames")))
        await visit.click("Mute")
        await visit.page.wait_for_selector("#badge-hear", state="hidden")
        heard, shown = len(appends(visit, "audio")), len(appends(visit, "video_frames"))
        await eventually(lambda: len(appends(visit, "video_frames")) >= shown + 3)
        assert len(appends(visit, "audio")) == heard
        alone = appends(visit, "video_frames")[shown:]
        assert all("audio" not in e and len(e["video_frames"]) == 1 for e in alone)
        times = [e["frame_times_ms"][0] for e in alone]
        assert all(b - a > APART_MS for a, b in pairwise(times)), "one a second, at the most"
        await eventually(lambda: len(pictures_alone(server)) >= 3)
        assert all(len(unit.frames) == 1 for unit in pictures_alone(server)), "the server got them alone"
        await visit.click("Unmute")
        await eventually(lambda: len(appends(visit, "audio")) > heard + 2)


async def test_what_is_said_is_written_asked_and_interrupts(tmp_path: Path) -> None:
    """A model that only reads and writes, given ears and a voice. The user says something every 3 s."""
    listener = ScriptedTranscriber("tell me a story", "and now something else")
    said = spoken("question.wav", 1500, pitch_hz=180, words_per_s=3.0, rate_hz=48000).samples
    pause = np.zeros(48000 * 3 // 2, np.float32)
    voice = wav(np.clip(np.concatenate([said * 2, pause]), -1, 1) * 32000, 48000)
    async with (
        FakeEngine(tells, pace=Pace()) as engine,
        Served(engine, tmp_path, speaker=ScriptedSpeaker(), ears=ears(listener)) as served,
        Visit(served.url, tmp_path, voice=voice) as visit,
    ):
        await visit.start()
        await visit.click("Microphone")
        await visit.reads("#said .user", "tell me a story")
        await visit.reads("#query", "tell me a story")
        await visit.page.wait_for_selector("#badge-speak:visible")
        await visit.reads("#said .assistant", "(interrupted)")
        await visit.reads("#said .user", "and now something else")
        await visit.shot("talking")
        (session,) = served.core.registry.sessions()
        assert session.view()["turn_detection"]["type"] == "server_vad"
        assert not any(e["type"].endswith(".commit") for e in visit.sent)
        cut = next(
            e for e in visit.got if e["type"] == "response.done" and e["response"]["status"] == "cancelled"
        )
        heard = cut["response"]["output"][0]["content"][0]["transcript"]
        assert heard and STORY.startswith(heard)


async def test_a_cough_pauses_what_is_played_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    """The microphone hears a fifth of a second of something every 4 s; it has no words."""
    cough = 0.3 * np.sign(np.sin(np.arange(48000 // 5) * 2 * np.pi * 180 / 48000))
    voice = wav(np.concatenate([np.zeros(48000), cough, np.zeros(48000 * 14 // 5)]) * 32000, 48000)
    told = "There is a sun over the hills, and it moves on and on, slowly, from left to right; nothing else."
    async with (
        FakeEngine(lambda seen: f" {told}" if seen.continued else "<silence>", pace=Pace()) as engine,
        Served(engine, tmp_path, speaker=ScriptedSpeaker(), ears=ears(ScriptedTranscriber())) as served,
        Visit(served.url, tmp_path, voice=voice) as visit,
    ):
        await visit.start()
        await visit.click("Microphone")
        await eventually(lambda: sum("audio" in e for e in visit.sent) >= 3)
        await visit.ask("what is there?")
        total = CHAR_MS * len(told)
        await eventually(lambda: any(a["played_ms"] == total for a in visit.of("playback.ack")))
        places = [n for n, e in enumerate(visit.both) if e["type"] == "vigil.playback"]
        assert [visit.both[n]["action"] for n in places[:2]] == ["pause", "resume"]
        before, after = (played(visit.both[:n]) for n in places[:2])
        assert after - before <= 300, "it was silent meanwhile, for at least half a second"
        acks = [e["played_ms"] for e in visit.of("playback.ack")]
        assert acks == sorted(acks) and acks[-1] == total, "and went on where it was"
        (done,) = [e for e in visit.got if e["type"] == "response.done"]
        assert done["response"]["status"] == "completed"
        assert not [e for e in visit.got if e["type"] == "input_audio_buffer.speech_started"]


def played(events: list[dict[str, Any]]) -> int:
    """What was acknowledged last, in ms."""
    return max((int(e["played_ms"]) for e in events if e["type"] == "playback.ack"), default=0)


async def test_a_full_duplex_model_converses(tmp_path: Path) -> None:
    """Decisions of a model that hears all the time, its voice, and a voice that it is shown."""
    async with (
        NativeServed(tmp_path, "pattern:LLSSE", like=MINICPM_VISION_LIKE, scale=1.0) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.ready()
        sample = base64.b64decode(reference().partition(",")[2])
        await visit.page.set_input_files(
            "#voice-sample", {"name": "voice.wav", "mimeType": "audio/wav", "buffer": sample}
        )
        await visit.click("Camera")
        await visit.click("Start")
        await visit.is_live()
        await visit.click("Microphone")
        await visit.page.wait_for_selector("#badge-speak:visible")
        await visit.reads("#timeline .row.silence", "Silence")
        await visit.page.wait_for_selector("#timeline .row.response .text")
        await eventually(lambda: any(a["played_ms"] > 0 for a in visit.of("playback.ack")))
        engine_session = served.engines[0].sessions[0]
        await eventually(lambda: any(unit.frames for unit in engine_session.units))
        assert any(unit.samples for unit in engine_session.units)
        await visit.shot("duplex")
        await visit.page.get_by_role("tab", name="Memory").click()
        await visit.page.wait_for_selector("#memory h3")
        await visit.shot("duplex-memory")
