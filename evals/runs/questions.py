"""Questions that a data set only writes, spoken for models that listen: by the voice that the settings name.

What was said lies in the run's folder, by the words and the voice: a question that comes again, or a run that
goes on, has the same sound.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from bridges.speech import Speaker, SpeechError
from evals.readers.clip import Clip
from evals.replay.options import ReplayError
from evals.runs.recordings import unspoken
from orchestrator.exits import Exit
from orchestrator.files import write_whole
from orchestrator.offline.timeline import Recording
from orchestrator.session.backend import Clock
from orchestrator.settings import Settings
from orchestrator.voice_setup import speaker_of
from orchestrator.wire.audio import pcm16_to_float, read_wav, write_wav
from orchestrator.wire.errors import InvalidRequest

QUESTIONS = "questions"
"""Folder of a run."""
TEXT_S = 120.0
"""Longest time for one question to be spoken."""

NO_VOICE = (
    "its question {} is not spoken, and a model that listens is asked aloud: install a speech program"
    " (apt-get install flite espeak-ng), name a voice with --voice-bridge, or give the question a file"
)


class Asker:
    """:param speaker: whose words are heard; closed by ``aclose``; ``None``: there is none
    :param voice: what its sound depends on beside the words, JSON-ready
    """

    def __init__(self, speaker: Speaker | None, voice: Mapping[str, Any], language: str) -> None:
        self._speaker = speaker
        self._language = language
        self._alone = asyncio.Lock()
        self.voice = {**voice, "language": language}

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Asker:
        """Raises ``SetupError``: what the settings ask for is not installed."""
        voice = settings.voice
        told = voice.model_dump(mode="json", include={"bridge", "name", "program", "model"})
        if voice.piper_model is not None:
            told["model"] = voice.piper_model.name
        return cls(speaker_of(voice, clock), told, settings.language)

    async def spoken(self, clip: Clip, run: Path) -> dict[str, Recording]:
        """The questions of a clip that nobody has spoken, by their ids.

        :raises ReplayError: ``not_spoken``: there is no voice; ``voice_failed``: it can't speak
        """
        texts = {query.id: query.text for query in clip.queries}
        silent = unspoken(clip)
        if silent and self._speaker is None:
            raise ReplayError(Exit.NO_SOURCE, "not_spoken", NO_VOICE.format(silent[0]))
        async with self._alone:  # clips that are watched at a time ask the same
            return {name: await self._kept(texts[name], run / QUESTIONS) for name in silent}

    async def aclose(self) -> None:
        if self._speaker is not None:
            await self._speaker.aclose()

    async def _kept(self, text: str, folder: Path) -> Recording:
        said = orjson.dumps([text, self.voice], option=orjson.OPT_SORT_KEYS)
        path = folder / f"{hashlib.sha256(said).hexdigest()[:32]}.wav"
        try:
            samples, rate_hz = read_wav(await asyncio.to_thread(path.read_bytes))
        except (FileNotFoundError, InvalidRequest):
            sound = await self._say(text)
            await asyncio.to_thread(_write, path, sound)
            samples, rate_hz = read_wav(sound)
        return Recording(path.name, samples, rate_hz)

    async def _say(self, text: str) -> bytes:
        assert self._speaker is not None
        pcm = b""
        try:
            async with asyncio.timeout(TEXT_S):
                async for chunk in self._speaker.speak(_whole(text), None, self._language):
                    if chunk.instead is not None:
                        raise SpeechError(chunk.instead, "another voice would speak in its place")
                    pcm += chunk.pcm
        except (SpeechError, TimeoutError) as error:
            told = f"the voice that speaks questions failed: {str(error) or f'{TEXT_S:g} s were not enough'}"
            raise ReplayError(Exit.FAILED, "voice_failed", told) from error
        if not pcm:
            raise ReplayError(Exit.FAILED, "voice_failed", f"the voice has no sound for {text[:80]!r}")
        return write_wav(pcm16_to_float(pcm), self._speaker.rate_hz)


async def _whole(text: str) -> AsyncIterator[str]:
    yield text


def _write(path: Path, sound: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    write_whole(path, sound)
