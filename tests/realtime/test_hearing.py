"""A model that only reads, given ears and a voice, over sockets: turns, barge-in, a cough, push to talk."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bridges.asr import AsrError
from tests.api.serving import Served
from tests.fakes.ears import ScriptedTranscriber, ears, loud, quiet
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speaker import CHAR_MS, ScriptedSpeaker
from tests.realtime import strictly
from tests.realtime.hearing import VAD, play
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

COMPLETED = "conversation.item.input_audio_transcription.completed"
STORY = "A long story, that goes on and on, and never seems to come to an end. "
TURNS: dict[str, Any] = {"turn_detection": VAD, "extra_body": {"auto_response": False}}


def rambles(seen: Seen) -> str:
    return f" {STORY}" if seen.continued else "<silence>"


@asynccontextmanager
async def hearing(
    folder: Path, *words: str | AsrError, opening: dict[str, Any] = TURNS, **options: Any
) -> AsyncIterator[tuple[Served, Talker, ScriptedTranscriber]]:
    transcriber = ScriptedTranscriber(*words)
    async with (
        FakeEngine(rambles, pace=Pace()) as engine,
        Served(engine, folder, speaker=ScriptedSpeaker(), ears=ears(transcriber, **options)) as served,
        Talker(served.url, opening=opening) as talker,
    ):
        yield served, talker, transcriber
    assert transcriber.closed


async def utterance(talker: Talker, ms: float) -> None:
    await play(talker, np.concatenate((loud(ms), quiet(600))))


async def test_a_turn_is_committed_by_its_words_and_answered(tmp_path: Path) -> None:
    async with hearing(tmp_path, "tell me a story") as (served, t, _):
        assert t.session["capabilities"]["optional_input_modalities"] == ["audio", "video"]
        await utterance(t, 640)
        await t.until("response.created")
        told = [e for e in t.types if not e.startswith("session.")]
        assert told == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "conversation.item.added",
            "conversation.item.created",
            "input_audio_buffer.committed",
            COMPLETED,
            "conversation.item.done",
            "response.created",
        ]
        (done,) = t.of("conversation.item.done")
        assert done["item"]["content"] == [{"type": "input_audio", "transcript": "tell me a story"}]
        (heard,) = t.of(COMPLETED)
        assert heard["item_id"] == done["item"]["id"] and heard["usage"]["seconds"] > 1.0
        assert sum(strictly.check(e) for e in t.seen if not e["type"].startswith("session.")) > 5
        await eventually(lambda: served.memory(t.session_id).query == "tell me a story")


async def test_noise_is_no_turn(tmp_path: Path) -> None:
    async with hearing(tmp_path, "") as (served, t, asr):
        await utterance(t, 640)
        await eventually(lambda: bool(asr.asked))
        await t.answered()
        assert "input_audio_buffer.speech_stopped" in t.types
        assert not {"input_audio_buffer.committed", "response.created", COMPLETED, "error"} & set(t.types)
        assert served.memory(t.session_id).query is None


async def test_a_cough_costs_the_answer_nothing(tmp_path: Path) -> None:
    async with hearing(tmp_path, "") as (_, t, asr):
        await t.ask("tell me a story")
        await t.send("response.create")
        await t.until("response.output_audio.delta")
        await utterance(t, 200)
        done = await t.until("response.done")
        assert done["response"]["status"] == "completed"
        assert "".join(e["delta"] for e in t.of("response.output_audio_transcript.delta")) == STORY.strip()
        sound = sum(len(base64.b64decode(e["delta"])) // 48 for e in t.of("response.output_audio.delta"))
        assert sound == CHAR_MS * len(STORY.strip())
        assert len(asr.asked) == 1
        assert not {"input_audio_buffer.speech_started", "overlap.decision"} & set(t.types)


async def test_speech_stops_the_answer_and_is_the_next_question(tmp_path: Path) -> None:
    async with hearing(tmp_path, "stop, what time is it?") as (served, t, _):
        await t.ask("tell me a story")
        await t.send("response.create")
        await t.until("response.output_audio.delta", lambda e: e["metadata"]["audio_duration_ms"] >= 1000)
        name = t.of("response.created")[0]["response_id"]
        await t.send("playback.ack", response_id=name, played_ms=700)
        await utterance(t, 800)
        done = await t.until("response.done")
        assert done["response"]["status"] == "cancelled"
        (part,) = done["response"]["output"][0]["content"]
        assert part["transcript"] == STORY[: 700 // CHAR_MS].rstrip()
        (decided,) = t.of("overlap.decision")
        assert (decided["action"], decided["reason"]) == ("barge_in", "server_vad_speech_started")
        await t.until("response.created")
        await eventually(lambda: served.memory(t.session_id).query == "stop, what time is it?")


async def test_in_auto_mode_what_is_said_is_asked_without_a_commit(tmp_path: Path) -> None:
    wants = "conversation.item.input_audio_transcription.delta"
    async with hearing(tmp_path, "one", "two", opening={"turn_detection": VAD, "include": [wants]}) as (
        served,
        t,
        _,
    ):
        for words in ("one", "two"):
            await utterance(t, 640)
            heard = await t.until(COMPLETED)
            assert heard["transcript"] == words
            await eventually(lambda words=words: served.memory(t.session_id).query == words)
        await t.answered()
        assert "input_audio_buffer.committed" not in t.types
        ids = [e["item"]["id"] for e in t.of("conversation.item.done")]
        assert len(set(ids)) == 2 and ids == [e["item_id"] for e in t.of(COMPLETED)]


async def test_push_to_talk(tmp_path: Path) -> None:
    """Without a detector of the session's the client says when a turn ends."""
    opening = {"extra_body": {"auto_response": False}}
    async with hearing(tmp_path, "what is it", opening=opening) as (served, t, asr):
        await play(t, np.concatenate((loud(320), quiet(800), loud(320))))
        await t.send("input_audio_buffer.commit")
        heard = await t.until(COMPLETED)
        assert heard["item_id"] == t.of("input_audio_buffer.committed")[0]["item_id"]
        assert len(asr.asked) == 1
        await eventually(lambda: served.memory(t.session_id).query == "what is it")
        await t.send("response.create")
        done = await t.until("response.done")
        assert done["response"]["status"] == "completed"


async def test_words_that_cannot_be_had_are_an_error_of_their_own(tmp_path: Path) -> None:
    late = AsrError("asr_timeout", "no transcript within 10 s")
    async with hearing(tmp_path, late, "again") as (_, t, _):
        await utterance(t, 640)
        await t.error("asr_timeout")
        await utterance(t, 640)
        assert (await t.until(COMPLETED))["transcript"] == "again"


async def test_without_ears_sound_is_refused(tmp_path: Path) -> None:
    async with (
        FakeEngine(rambles) as engine,
        Served(engine, tmp_path) as served,
        Talker(served.url, opening={}) as t,
    ):
        assert t.session["capabilities"]["optional_input_modalities"] == ["video"]
        await t.speech(200)
        await t.error("invalid_input_modality")
