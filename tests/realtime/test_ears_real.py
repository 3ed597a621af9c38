"""Recorded speech through a real socket, a real detector and recogniser: its words become the query."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import numpy as np
import pytest

from evals.recordings import recordings, silence, word_errors
from orchestrator.wire.audio import Codec, Resampler, float_to_g711
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speaker import ScriptedSpeaker
from tests.realtime.hearing import VAD, play, real_ears
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

pytestmark = pytest.mark.timeout(300)
COMPLETED = "conversation.item.input_audio_transcription.completed"
NAMES = ("0870", "0880", "0930")


WORDS = "response.output_audio_transcript.delta"
TURNS = {"turn_detection": VAD, "extra_body": {"auto_response": False}}


def says(seen: Seen) -> str:
    return " I heard you." if seen.continued else "<silence>"


async def test_what_is_said_becomes_the_query_and_is_answered(tmp_path: Path) -> None:
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        real_ears() as ears,
        Served(engine, tmp_path, ears=ears) as served,
        Talker(served.url, opening=TURNS) as t,
    ):
        assert t.session["capabilities"]["optional_input_modalities"] == ["audio", "video"]
        errors = words = 0
        for name in NAMES:
            samples, said = recordings()[name]
            await play(t, np.concatenate((silence(0.5), samples, silence(1.0))))
            heard = await t.until(COMPLETED)
            wrong, count = word_errors(said, heard["transcript"])
            errors, words = errors + wrong, words + count
            assert abs(heard["usage"]["seconds"] - samples.size / 16000) < 1.2
            done = await t.until("response.done")
            assert done["response"]["output"][0]["content"][0]["text"] == "I heard you."
            await eventually(lambda h=heard: served.memory(t.session_id).query == h["transcript"])
        assert errors / words <= 0.1, f"{errors} of {words} words"
        assert not t.of("error")
        order = [
            e for e in t.types if e.startswith(("input_audio_buffer.speech", "response.created", COMPLETED))
        ]
        assert order == 3 * [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            COMPLETED,
            "response.created",
        ]


async def test_telephone_speech_is_understood(tmp_path: Path) -> None:
    samples, said = recordings()["0870"]
    narrow = Resampler(16000, 8000).push(np.concatenate((silence(0.5), samples, silence(1.0))), last=True)
    coded = float_to_g711(narrow, Codec.ULAW)
    async with (
        FakeEngine(says) as engine,
        real_ears() as ears,
        Served(engine, tmp_path, ears=ears) as served,
        Talker(served.url, opening={"turn_detection": VAD, "input_audio_format": "g711_ulaw"}) as t,
    ):
        for at in range(0, len(coded), 160):
            await t.send("input_audio_buffer.append", audio=base64.b64encode(coded[at : at + 160]).decode())
        heard = await t.until(COMPLETED)
        assert word_errors(said, heard["transcript"])[0] <= 1, heard


@pytest.mark.parametrize("level", [0.0, 0.002, 0.01])
async def test_ten_minutes_without_speech_give_no_words(tmp_path: Path, level: float) -> None:
    async with (
        FakeEngine(says) as engine,
        real_ears() as ears,
        Served(engine, tmp_path, ears=ears) as served,
        Talker(served.url, opening=TURNS) as t,
    ):
        for minute in range(10):
            await play(t, silence(60.0, level, minute))
            await t.answered()
        await play(t, silence(1.0))
        await t.answered()
        assert not {"error", COMPLETED, "response.created"} & set(t.types)
        assert served.memory(t.session_id).query is None
        assert ears.transcriber.statistics()["transcribed"] == 0


async def test_a_burst_of_noise_ends_no_answer_and_no_utterance(tmp_path: Path) -> None:
    """200 ms of it within speech belong to the speech: there is one utterance, and its words are right."""
    samples, said = recordings()["0870"]
    burst = silence(0.2, 0.2)
    with_noise = samples.copy()
    at = samples.size // 2
    with_noise[at : at + burst.size] += burst
    async with (
        FakeEngine(says) as engine,
        real_ears() as ears,
        Served(engine, tmp_path, ears=ears) as served,
        Talker(served.url, opening={"turn_detection": VAD}) as t,
    ):
        await play(t, np.concatenate((silence(0.5), with_noise, silence(1.0))))
        heard = await t.until(COMPLETED)
        assert len(t.of("input_audio_buffer.speech_started")) == 1
        assert word_errors(said, heard["transcript"])[0] <= 5, heard


async def test_a_burst_of_noise_over_an_answer_does_not_end_it_and_speech_does(tmp_path: Path) -> None:
    story = "A long story, that goes on and on, and never seems to come to its end at all. " * 2
    samples, said = recordings()["0930"]

    def rambles(seen: Seen) -> str:
        return f" {story}" if seen.continued else "<silence>"

    async with (
        FakeEngine(rambles, pace=Pace()) as engine,
        real_ears() as ears,
        Served(engine, tmp_path, speaker=ScriptedSpeaker(), ears=ears) as served,
        Talker(served.url, opening=TURNS) as t,
    ):
        await t.ask("tell me a story")
        await t.send("response.create")
        await t.until("response.output_audio.delta")
        for seed in range(3):
            await play(t, np.concatenate((silence(0.3, 0.002), silence(0.2, 0.3, seed), silence(0.8, 0.002))))
        done = await t.until("response.done")
        assert done["response"]["status"] == "completed"
        assert "".join(e["delta"] for e in t.of(WORDS)) == story.strip()
        assert not {"input_audio_buffer.speech_started", COMPLETED} & set(t.types)
        await t.send("playback.ack", response_id=done["response_id"], played_ms=99_000)
        before = len(t.of("response.created"))
        await t.send("response.create")
        await t.until("response.output_audio.delta")
        await play(t, np.concatenate((samples, silence(1.0))))
        done = await t.until("response.done")
        assert done["response"]["status"] == "cancelled"
        heard = await t.until(COMPLETED)
        assert word_errors(said, heard["transcript"])[0] <= 2, heard
        await t.until("response.created")
        assert len(t.of("response.created")) == before + 2


async def test_many_sessions_share_one_recogniser(tmp_path: Path) -> None:
    found = recordings()

    async def one(served: Served, name: str) -> tuple[int, int]:
        samples, said = found[name]
        async with Talker(served.url, opening={"turn_detection": VAD}) as t:
            await play(t, np.concatenate((silence(0.5), samples, silence(1.0))))
            heard = await t.until(COMPLETED)
            assert not t.of("error")
            return word_errors(said, heard["transcript"])

    async with (
        FakeEngine(says) as engine,
        real_ears(partial_s=0.0) as ears,
        Served(engine, tmp_path, ears=ears) as served,
    ):
        results = await asyncio.gather(*(one(served, name) for name in NAMES))
        errors, words = (sum(each) for each in zip(*results, strict=True))
        assert errors / words <= 0.15, f"{errors} of {words} words"
        assert ears.transcriber.statistics()["worker_starts"] == 1


def test_word_errors_are_counted() -> None:
    assert word_errors("a b c", "A, b c.") == (0, 3)
    assert word_errors("a b c", "a c") == (1, 3)
    assert word_errors("a b", "x a b y") == (2, 2)
    assert word_errors("", "a") == (1, 0)
