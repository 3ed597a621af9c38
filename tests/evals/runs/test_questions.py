"""Questions that nobody has spoken: each said once by the voice of the settings, kept, and never left out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridges.circuit import RealClock
from bridges.clause_speaker import ClauseSpeaker, RawSound
from bridges.fallback_voice import FallbackVoice
from bridges.speech import SpeechError
from bridges.system_voice import SystemVoice
from evals.readers.clip import Clip
from evals.replay.options import ReplayError
from evals.runs.questions import QUESTIONS, Asker
from orchestrator.runtime.clock import SystemClock
from orchestrator.settings import Settings
from tests.fakes.speaker import ScriptedSpeaker

VOICE = {"bridge": "system"}
OTHER = {"id": "s", "start_s": 0, "end_s": 2, "text": "Who is there?"}


def clip(*texts: str, **more: Any) -> Clip:
    queries = [{"id": f"q{n}", "at_s": n, "text": text} for n, text in enumerate(texts)]
    return Clip.model_validate({"id": "one", "video": "one.mp4", "queries": queries, **more})


async def test_a_question_is_said_once_and_kept_for_the_run(tmp_path: Path) -> None:
    speaker = ScriptedSpeaker()
    first = Asker(speaker, VOICE, "en")
    found = await first.spoken(clip("What is there?", "Who is there?", "What is there?"), tmp_path)
    assert speaker.texts == ["What is there?", "Who is there?"] and speaker.voices[0] == (None, "en")
    assert sorted(found) == ["q0", "q1", "q2"] and np.abs(found["q0"].samples).max() > 0.2
    later = ScriptedSpeaker()
    again = await Asker(later, VOICE, "en").spoken(clip("Who is there?"), tmp_path)
    assert later.texts == [] and np.array_equal(again["q0"].samples, found["q1"].samples)
    kept = next((tmp_path / QUESTIONS).iterdir())
    kept.write_bytes(b"RIFF")
    await Asker(later, VOICE, "en").spoken(clip("What is there?", "Who is there?"), tmp_path)
    assert len(later.texts) == 1, "one that can't be read any more is said again"
    await Asker(later, {"bridge": "piper"}, "en").spoken(clip("Who is there?"), tmp_path)
    await Asker(later, VOICE, "zh").spoken(clip("Who is there?"), tmp_path)
    assert len(later.texts) == 3, "another voice, or another language, has its own"


async def test_what_is_spoken_already_is_left_alone(tmp_path: Path) -> None:
    spoken = clip("Who is there?", speech=[OTHER])
    by_file = Clip.model_validate(
        {"id": "two", "video": "two.mp4", "queries": [{"id": "q", "text": "Who?", "audio": "who.wav"}]}
    )
    for one in (spoken, by_file):
        assert await Asker(None, VOICE, "en").spoken(one, tmp_path) == {}
    assert not (tmp_path / QUESTIONS).exists()


async def test_without_a_voice_it_is_told_how_to_get_one(tmp_path: Path) -> None:
    asker = Asker.of(Settings(engine="ws://127.0.0.1:1", voice={"bridge": "none"}), SystemClock())
    with pytest.raises(ReplayError, match=r"question q0 is not spoken.*flite.*--voice-bridge"):
        await asker.spoken(clip("Who is there?"), tmp_path)


async def test_a_voice_that_fails_fails_the_clip_and_no_other_speaks_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="the voice that speaks questions failed: speech_failed"):
        await Asker(ScriptedSpeaker(fail_after=1), VOICE, "en").spoken(clip("Who is there?"), tmp_path)

    class Away(SystemVoice):
        async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound]:
            raise SpeechError("speech_unreachable", "nobody is there")
            yield

    clock = RealClock()
    voice = ClauseSpeaker(FallbackVoice(Away(), SystemVoice(), clock), clock)
    with pytest.raises(ReplayError, match="speech_unreachable: another voice would speak"):
        await Asker(voice, VOICE, "en").spoken(clip("Who is there?"), tmp_path)
    assert not (tmp_path / QUESTIONS).exists()


async def test_the_systems_own_voice_says_it(tmp_path: Path) -> None:
    asker = Asker.of(Settings(engine="ws://127.0.0.1:1"), SystemClock())
    assert asker.voice == {"bridge": "auto", "name": None, "program": None, "model": None, "language": "en"}
    async with aclosing(asker):
        found = await asker.spoken(clip("Tell me when a red circle appears."), tmp_path)
    said = found["q0"]
    assert 1.0 < said.samples.size / said.rate_hz < 6.0 and np.abs(said.samples).max() > 0.1
