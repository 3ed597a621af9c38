"""Somebody speaks, the model on the real engine answers, and its answer is heard: every part of it real.

Recorded speech goes through a socket into a real detector and a real recogniser; its words become the query,
which the CPU engine answers; the system's voice says the answer, and the recogniser reads it back.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_launch.standin.script import say
from evals.recordings import RATE_HZ, Samples, recordings, silence, word_errors
from orchestrator.backends.ears import Ears
from orchestrator.wire.audio import Resampler
from tests.api.serving import Served
from tests.engine_launch.real_engine import RealEngine
from tests.fakes.pictures import jpeg
from tests.realtime.hearing import VAD, play, real_ears
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

pytestmark = pytest.mark.engine

ANSWER = "The red car has reached the bridge, and two people are waiting for the bus."
COMPLETED = "conversation.item.input_audio_transcription.completed"
OPENING = {"turn_detection": VAD, "modalities": ["text", "audio"], "extra_body": {"auto_response": True}}


async def test_what_is_said_is_answered_aloud(
    small_engine: Callable[..., RealEngine],
    tmp_path: Path,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    engine: Any = small_engine(script=say(f"</response> {ANSWER}"))
    asked, answered = (0, 0), (0, 0)
    async with (
        real_ears(language="en") as ears,
        Served(engine, tmp_path, model=engine.model, ears=ears, voice={"bridge": "system"}) as served,
    ):
        for samples, words in recordings().values():
            async with Talker(served.url, opening=OPENING) as t:
                await t.show(jpeg(0, 224, 224), frame_times_ms=[0])
                await play(t, np.concatenate((silence(0.5), samples, silence(1.0))))
                heard = await t.until(COMPLETED)
                done = await t.until("response.done")
                assert not t.of("error"), t.of("error")
                asked = added(asked, word_errors(words, heard["transcript"]))
                memory = served.memory(t.session_id)
                await eventually(lambda m=memory, h=heard: m.query == h["transcript"])
                (part,) = done["response"]["output"][0]["content"]
                assert (done["response"]["status"], part["transcript"]) == ("completed", ANSWER)
                answered = added(answered, word_errors(ANSWER, await read_back(t, ears)))
    record_testsuite_property("word_error_rate", round(asked[0] / asked[1], 4))
    record_testsuite_property("answer_word_error_rate", round(answered[0] / answered[1], 4))
    assert asked[0] / asked[1] <= 0.1, f"{asked[0]} of {asked[1]} words of the questions are wrong"
    assert answered[0] / answered[1] <= 0.1, f"{answered[0]} of {answered[1]} words of the answers are wrong"


def added(so_far: tuple[int, int], more: tuple[int, int]) -> tuple[int, int]:
    return so_far[0] + more[0], so_far[1] + more[1]


async def read_back(talker: Talker, ears: Ears) -> str:
    """The words of all the sound that came."""
    chunks = talker.of("response.output_audio.delta")
    pcm = b"".join(base64.b64decode(each["delta"]) for each in chunks)
    sound: Samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
    rate = chunks[0]["sample_rate_hz"]
    assert sound.size / rate > 2.0, "some seconds of speech"
    heard = Resampler(rate, RATE_HZ).push(sound, last=True)
    return await ears.transcriber.transcribe(heard, "read back", language="en", final=True, deadline_s=60.0)
