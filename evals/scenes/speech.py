"""The questions of a clip, spoken: one track of sound in which each question ends as it counts as asked."""

from __future__ import annotations

import wave
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from bridges.system_voice import SystemVoice
from evals.readers.clip import Clip, Speech

RATE_HZ = 16000
VOICES = ("rms", "slt", "awb", "kal16")
"""Of flite; another program speaks with its own."""

Samples = npt.NDArray[np.int16]

_FLOOR = 12.0
"""Standard deviation of the noise between the words, of 32767: no microphone gives zeros."""
_PAUSE_S = 0.3


async def speak_clip(clip: Clip, voice: SystemVoice) -> tuple[Clip, Samples]:
    """The clip with its speech marked, and its track at ``RATE_HZ``. The same voice asks all of a clip.

    :raises SpeechError: the program can't speak
    :raises ValueError: the clip has no length
    """
    if clip.duration_s is None:
        raise ValueError(f"clip {clip.id!r} has no duration_s")
    seed = zlib.crc32(clip.id.encode())
    noise = np.random.default_rng(seed).standard_normal(round(clip.duration_s * RATE_HZ)) * _FLOOR
    track = np.rint(noise).astype(np.int16)
    spoken: list[Speech] = []
    free_s = 0.0
    for query in clip.queries:
        words = await _words(query.text, VOICES[seed % len(VOICES)], voice)
        # A question that would reach into the one before it, or before the start, ends later.
        start = round(max(query.at_s - len(words) / RATE_HZ, free_s) * RATE_HZ)
        heard = words[: len(track) - start]
        track[start : start + len(heard)] += heard
        end_s = (start + len(heard)) / RATE_HZ
        spoken.append(Speech(id=f"speech-{query.id}", start_s=start / RATE_HZ, end_s=end_s, text=query.text))
        free_s = end_s + _PAUSE_S
    return clip.model_copy(update={"speech": tuple(spoken)}), track


def write_track(path: Path, track: Samples) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(track.astype("<i2").tobytes())


async def _words(text: str, name: str, voice: SystemVoice) -> Samples:
    pieces: list[Samples] = []
    rate_hz = RATE_HZ
    async for raw in voice.say(text, name, "en"):
        pieces.append(raw.samples)
        rate_hz = raw.rate_hz
    whole = np.concatenate(pieces)
    resampled: Samples = whole if rate_hz == RATE_HZ else soxr.resample(whole, rate_hz, RATE_HZ)
    # Half as loud as it can be: the noise beneath is added without clipping.
    return (resampled // 2).astype(np.int16)
