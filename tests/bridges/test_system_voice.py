"""The system's own programs, for real: what they say, side by side, cut off, missing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import psutil
import pytest

from bridges.circuit import RealClock
from bridges.clause_speaker import RATE_HZ, ClauseSpeaker
from bridges.speech import SpeechError, SpokenChunk
from bridges.system_voice import SystemOptions, SystemVoice
from tests.realtime.serving import eventually
from tests.realtime.test_system_voice import speech_processes

TEXT = "Please tell me, when the **red car** 👍 reaches the bridge. Thank you."


async def words_of(text: str) -> AsyncIterator[str]:
    for word in text.split(" "):
        yield word + " "


async def spoken(speaker: ClauseSpeaker, text: str = TEXT, language: str = "en") -> list[SpokenChunk]:
    return [chunk async for chunk in speaker.speak(words_of(text), None, language)]


@pytest.mark.parametrize("program", ["flite", "espeak-ng"])
async def test_a_text_is_said_in_short_chunks_with_marks_that_end_with_it(program: str) -> None:
    chunks = await spoken(ClauseSpeaker(SystemVoice(SystemOptions(program)), RealClock()))
    marks = [chunk.chars for chunk in chunks]
    assert marks == sorted(marks) and marks[-1] == len(TEXT) + 1
    assert all(len(chunk.pcm) % 2 == 0 and len(chunk.pcm) <= RATE_HZ * 2 // 5 for chunk in chunks)
    pcm = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")
    assert 2.0 < len(pcm) / RATE_HZ < 8.0 and np.abs(pcm).max() > 2000
    await eventually(lambda: not speech_processes())


@pytest.mark.parametrize("program", ["flite", "espeak-ng"])
def test_it_speaks_on_the_loop_of_the_service_too(program: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def speak() -> list[SpokenChunk]:
        return await spoken(ClauseSpeaker(SystemVoice(SystemOptions(program)), RealClock()))

    assert any(chunk.pcm for chunk in uvloop.run(speak()))


@pytest.mark.parametrize(
    ("text", "language"), [("红车到了桥边。", "zh"), ("Hello.", "en"), ("Guten Tag.", "de"), ("Hm.", "../x")]
)
async def test_other_languages_are_said_and_a_strange_voice_counts_as_none(text: str, language: str) -> None:
    speaker = ClauseSpeaker(SystemVoice(), RealClock())
    chunks = [chunk async for chunk in speaker.speak(words_of(text), "../voice", language)]
    assert any(chunk.pcm for chunk in chunks)


async def test_two_are_spoken_side_by_side_and_places_are_bounded() -> None:
    voice = SystemVoice(SystemOptions(processes=1))
    speaker = ClauseSpeaker(voice, RealClock())
    first, second = await asyncio.gather(spoken(speaker), spoken(speaker, "Another one."))
    assert any(c.pcm for c in first) and any(c.pcm for c in second)
    assert voice.statistics() == {"running": 0, "waiting": 0}


def program(folder: Path, body: str) -> str:
    path = folder / "flite"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin"


async def test_who_is_cut_off_leaves_no_process(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    path = program(tmp_path, f"echo $$ > {told}.new; mv {told}.new {told}; exec sleep 600")
    voice = SystemVoice(SystemOptions("flite"), path)
    speaking = asyncio.create_task(spoken(ClauseSpeaker(voice, RealClock()), "Hello. "))
    await eventually(told.exists)
    process = psutil.Process(int(told.read_text()))
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    await eventually(lambda: not process.is_running())
    assert voice.statistics() == {"running": 0, "waiting": 0}


async def test_the_generator_closed_between_chunks_ends_the_process() -> None:
    speaker = ClauseSpeaker(SystemVoice(), RealClock())
    async with aclosing(speaker.speak(words_of(TEXT * 5), None, "en")) as chunks:
        await anext(chunks)
    await eventually(lambda: not speech_processes())
    assert {"texts": 1, "failed": 0, "cut": 1}.items() <= speaker.statistics().items()


@pytest.mark.parametrize(
    ("body", "code"),
    [("exit 3", "speech_failed"), ("echo nonsense", "speech_format"), ("exec sleep 60", "speech_timeout")],
)
async def test_a_program_that_fails_is_told(tmp_path: Path, body: str, code: str) -> None:
    piece_s = 0.5 if code == "speech_timeout" else 60.0
    voice = SystemVoice(SystemOptions("flite", piece_s=piece_s), program(tmp_path, body))
    with pytest.raises(SpeechError) as told:
        await spoken(ClauseSpeaker(voice, RealClock()))
    assert told.value.code == code and voice.statistics()["running"] == 0


def test_without_a_program_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SpeechError, match="apt-get install") as told:
        SystemVoice(path=str(tmp_path))
    assert told.value.code == "speech_not_installed"
