"""Piper's process: texts in turn, cut off, dying, hanging; and Piper itself where its environment exists."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from bridges.circuit import RealClock
from bridges.clause_speaker import ClauseSpeaker
from bridges.piper_voice import PiperOptions, PiperVoice
from bridges.speech import SpeechError, SpokenChunk
from tests.piper import installed

REPOSITORY = Path(__file__).parents[2]
WORKER = REPOSITORY / "tests" / "fakes" / "piper_worker.py"


async def words_of(text: str) -> AsyncIterator[str]:
    for word in text.split(" "):
        yield word + " "


async def said(speaker: ClauseSpeaker, text: str) -> list[SpokenChunk]:
    return [chunk async for chunk in speaker.speak(words_of(text), None, "en")]


@asynccontextmanager
async def scripted(
    folder: Path, gap_s: float = 60.0
) -> AsyncIterator[tuple[ClauseSpeaker, PiperVoice, Path]]:
    starts = folder / "starts"
    starts.write_text("")
    voice = PiperVoice(PiperOptions(Path(sys.executable), starts, gap_s=gap_s, worker=WORKER))
    speaker = ClauseSpeaker(voice, RealClock())
    yield speaker, voice, starts
    pid = voice.pid
    await speaker.aclose()
    assert pid is None or not psutil.pid_exists(pid)


async def test_one_process_says_all_texts_of_all_sessions(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (speaker, voice, _):
        texts = ["A dog barks. A cat sleeps. ", "Something else. ", "And more. "]
        for text, chunks in zip(texts, await asyncio.gather(*(said(speaker, t) for t in texts)), strict=True):
            assert chunks[-1].chars == len(text) + 1 and any(chunk.pcm for chunk in chunks)
        assert voice.statistics() == {"starts": 1, "waiting": 0}


@pytest.mark.parametrize(
    ("text", "code", "starts"),
    [
        ("Now die here. ", "speech_failed", 2),
        ("Now hang here. ", "speech_timeout", 2),
        ("Now nonsense. ", "speech_failed", 2),
        ("Now fail. ", "speech_failed", 1),
    ],
)
async def test_after_a_fault_the_next_text_is_said(tmp_path: Path, text: str, code: str, starts: int) -> None:
    async with scripted(tmp_path, gap_s=2.0 if "hang" in text else 60.0) as (speaker, voice, _):
        with pytest.raises(SpeechError) as told:
            await said(speaker, text)
        assert told.value.code == code
        assert any(chunk.pcm for chunk in await said(speaker, "Fine again. "))
        assert voice.starts == starts


async def test_a_process_that_died_between_two_texts_is_replaced(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (speaker, voice, _):
        await said(speaker, "Hello there. ")
        assert voice.pid is not None
        process = psutil.Process(voice.pid)
        process.kill()
        await asyncio.to_thread(psutil.wait_procs, [process], 60)
        chunks = await said(speaker, "Hello again. ")
        assert any(chunk.pcm for chunk in chunks) and voice.starts == 2


async def test_a_process_of_which_nobody_knows_that_it_died_is_replaced(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (speaker, voice, _):
        await said(speaker, "Hello there. ")
        assert voice.pid is not None
        psutil.Process(voice.pid).kill()
        chunks = await said(speaker, "Hello again. ")
        assert any(chunk.pcm for chunk in chunks) and voice.starts == 2


async def test_who_is_cut_off_stops_the_text_and_the_next_one_is_whole(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (speaker, voice, _):
        async with aclosing(speaker.speak(words_of("A long story that goes on. " * 8), None, "en")) as chunks:
            await anext(chunks)
        before = await said(speaker, "Short one. ")
        alone = await said(speaker, "Short one. ")
        assert [c.pcm for c in before] == [c.pcm for c in alone] and voice.starts == 1


@pytest.mark.parametrize("steps", range(1, 12, 2))
async def test_cut_off_at_any_moment_nothing_is_mixed_up(tmp_path: Path, steps: int) -> None:
    async with scripted(tmp_path) as (speaker, voice, _):
        alone = await said(speaker, "Short one. ")
        speaking = asyncio.create_task(said(speaker, "A long story that goes on and on. "))
        for _ in range(steps):
            await asyncio.sleep(0)
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
        assert [c.pcm for c in await said(speaker, "Short one. ")] == [c.pcm for c in alone]
        assert voice.starts == 1


def test_it_speaks_on_the_loop_of_the_service_too(tmp_path: Path) -> None:
    async def speak() -> None:
        async with scripted(tmp_path) as (speaker, _, _):
            assert any(chunk.pcm for chunk in await said(speaker, "Hello there. "))

    pytest.importorskip("uvloop").run(speak())


def test_what_is_not_installed_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpeechError, match="speech_not_installed"):
        PiperVoice(PiperOptions(tmp_path / "python", tmp_path / "voice.onnx"))


def test_piper_is_imported_by_its_own_program_alone() -> None:
    rooms = ("orchestrator", "memory", "bridges", "engine_launch", "prompts", "evals")
    importers = set()
    for path in (path for room in rooms for path in (REPOSITORY / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "piper" or name.endswith("piper_worker") for name in names):
                importers.add(path.name)
    assert importers == {"piper_worker.py"}


@pytest.mark.skipif(installed() is None, reason="make voices installs Piper")
async def test_piper_itself_speaks_and_is_cut_off() -> None:
    options = installed()
    assert options is not None
    voice = PiperVoice(options)
    speaker = ClauseSpeaker(voice, RealClock())
    chunks = await said(speaker, "Please tell me when the red car reaches the bridge. ")
    assert 1.5 < sum(len(chunk.pcm) for chunk in chunks) / 48000 < 6.0
    async with aclosing(speaker.speak(words_of("The quick brown fox jumps. " * 8), None, "en")) as cut:
        await anext(cut)
    assert voice.starts == 1
    assert any(chunk.pcm for chunk in await said(speaker, "Yes. "))
    await speaker.aclose()
