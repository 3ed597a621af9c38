"""The whole service in front of scripted full-duplex engines, with everybody's time sped up alike."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from orchestrator.app import Core, _durable
from orchestrator.native_setup import NativeEngines
from orchestrator.native_track import NativeTrack
from orchestrator.offline.timeline import Recording
from orchestrator.runtime.clock import system_ids
from orchestrator.settings import Settings
from orchestrator.wire.audio import pcm16_to_float, write_wav
from prompts.native import NativeProfile
from prompts.native_loader import native_profile
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine, EngineProfile, ScaledClock, Script
from tests.fakes.listening import Listening
from tests.fakes.speaker import tone

SCALE = 10.0
MODEL = "talker"
FAMILY = "minicpmo_4_5"


class NativeServed(Listening):
    """``async with NativeServed(folder, "pattern:LLSE") as served``: ``served.url``, ``served.engines``.

    :param engines: how many; each holds ``max_sessions``
    :param profile: of the family; the engines are its ``like``
    :param scale: how much faster than real time everybody lives
    :param elsewhere: URL and model of an engine that runs already, in place of scripted ones; in real time
    """

    def __init__(
        self,
        data: Path,
        script: Script = "pattern:LLSE",
        *,
        engines: int = 1,
        max_sessions: int = 4,
        like: EngineProfile = MINICPM_LIKE,
        profile: NativeProfile | None = None,
        elsewhere: tuple[str, str] | None = None,
        scale: float = SCALE,
        **settings: Any,
    ) -> None:
        defaults: dict[str, Any] = {
            "engine": "ws://127.0.0.1:1",
            "data": data,
            "port": 0,
            "auth": {"required": False},
            "limits": {"engine_sessions": max_sessions},
        }
        self.settings = Settings(**{**defaults, **settings})
        self.profile = profile or native_profile(FAMILY)
        self.elsewhere = elsewhere
        self.clock = ScaledClock(1.0 if elsewhere else scale)
        self.engines = [
            DuplexEngine(script, like, max_sessions=max_sessions, clock=self.clock)
            for _ in range(0 if elsewhere else engines)
        ]
        self._stack = AsyncExitStack()
        self.track: NativeTrack

    async def __aenter__(self) -> NativeServed:
        for engine in self.engines:
            await self._stack.enter_async_context(engine)
        url, model = self.elsewhere or ("", MODEL)
        urls = (url,) if url else tuple(engine.url for engine in self.engines)
        found = NativeEngines(urls, model, self.profile)
        self.track = NativeTrack(self.settings, found, self.clock, system_ids)
        keeper = await _durable(self.settings, self.clock)
        self.core = Core(self.settings, self.track, keeper, self.clock)
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()
        await self._stack.aclose()


def reference() -> str:
    """A voice for models that want to be shown one."""
    samples = pcm16_to_float(tone(500))
    return "data:audio/wav;base64," + base64.b64encode(write_wav(samples, 24000)).decode()


def spoken(name: str, ms: int, *, pitch_hz: float, words_per_s: float, rate_hz: int = 16000) -> Recording:
    """Something with the shape of speech: a pitch with harmonics, in syllables, with noise for consonants."""
    at = np.arange(rate_hz * ms // 1000) / rate_hz
    pitch = 2 * np.pi * pitch_hz * (at + 0.01 * np.sin(2 * np.pi * 3 * at))
    voiced = sum(np.sin(k * pitch) / k for k in range(1, 6))
    noise = np.random.default_rng(len(name)).normal(0, 0.2, at.size)
    syllables = np.clip(np.sin(2 * np.pi * words_per_s * at), 0, None)
    samples = 0.3 * syllables * voiced + 0.1 * syllables[::-1] * noise
    return Recording(name, samples.astype(np.float32), rate_hz)


QUESTION = spoken("question.wav", 2300, pitch_hz=180, words_per_s=3.0)
ORDER = spoken("order.wav", 1400, pitch_hz=110, words_per_s=4.5)
SMALL_TALK = spoken("small_talk.wav", 3100, pitch_hz=230, words_per_s=2.2)
INPUTS = (QUESTION, ORDER, SMALL_TALK)
"""Three inputs that mean different things, as far as a scripted model can be asked to care."""
