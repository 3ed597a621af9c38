"""A session that ends, or loses its recogniser, while the words of an utterance are looked for.

Contract: an end is told at once and leaves nothing running; a recogniser that dies while words are looked for
ahead of an utterance's end is started anew and asked again, and no word is lost.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import numpy as np
import pytest

from bridges.asr_whisper import WhisperTranscriber
from evals.recordings import recordings, silence, word_errors
from tests.api.serving import Served
from tests.fakes.ears import ScriptedTranscriber, ears, loud, quiet
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.hearing import VAD, play, real_ears
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

COMPLETED = "conversation.item.input_audio_transcription.completed"


def says(_: Seen) -> str:
    return "<silence>"


@pytest.mark.parametrize("utterances", [1, 3])
async def test_an_end_waits_for_no_words(tmp_path: Path, utterances: int) -> None:
    transcriber = ScriptedTranscriber("never", "ever", "heard")
    transcriber.hold()
    async with (
        FakeEngine(says) as engine,
        Served(engine, tmp_path, ears=ears(transcriber)) as served,
        Talker(served.url, opening={"turn_detection": VAD}) as t,
    ):
        for _ in range(utterances):
            await play(t, np.concatenate((loud(640), quiet(600))))
        await eventually(lambda: transcriber.asked)
        await t.send("session.close")
        code, reason = await t.closed()
        assert (code, reason) == (1000, "client_close")
        assert not {"error", COMPLETED} & set(t.types)
        await eventually(lambda: not served.core.registry.sessions())
        left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("hearing ")]
        assert not left


@pytest.mark.timeout(300)
async def test_a_recogniser_that_is_killed_is_asked_again(tmp_path: Path) -> None:
    samples, said = recordings()["0930"]
    async with (
        FakeEngine(says) as engine,
        real_ears(partial_s=0.0) as real,
        Served(engine, tmp_path, ears=real) as served,
        Talker(served.url, opening={"turn_detection": VAD}) as t,
    ):
        whisper = real.transcriber
        assert isinstance(whisper, WhisperTranscriber) and whisper._process is not None
        await play(t, np.concatenate((silence(0.5), samples)))
        # Stopped, it takes what it is given and says nothing; then it is gone.
        whisper._process.send_signal(signal.SIGSTOP)
        await play(t, silence(1.0))
        await eventually(lambda: whisper.statistics()["in_work"] == 1)
        whisper._process.kill()
        for _ in range(2):
            heard = await t.until(COMPLETED)
            assert word_errors(said, heard["transcript"])[0] <= 2
            await play(t, np.concatenate((silence(0.5), samples, silence(1.0))))
        assert whisper.statistics()["worker_starts"] == 2 and not t.of("error")
        metrics = (await served.client.get("/metrics")).text
        assert (
            'vigil_utterances_without_words_total{reason="failed"} 0.0' in metrics
            and "vigil_transcriber_seconds_count" in metrics
        )
