"""The questions of a clip, spoken: one track of sound in which each question ends as it counts as asked.

Where it is wanted somebody also speaks while answers are likely to be heard: half of the time to stop them
(a barge-in), half of the time only to show that they listen.
"""

from __future__ import annotations

import wave
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from bridges.system_voice import SystemVoice
from evals.readers.clip import Clip, Expected, Speech

RATE_HZ = 16000
VOICES = ("rms", "slt", "awb", "kal16")
"""Of flite; another program speaks with its own."""

Samples = npt.NDArray[np.int16]

_FLOOR = 12.0
"""Standard deviation of the noise between the words, of 32767: no microphone gives zeros."""
_PAUSE_S = 0.3


STOPS = ("Stop, please.", "That is enough, thank you.", "Okay, stop talking.")
GOES_ON = ("Okay.", "I see.", "Right.")
OVER_S = 2.0
"""After the end of a question that is answered at once: whoever answers is likely to speak by then."""


async def speak_clip(clip: Clip, voice: SystemVoice, *, over: bool = False) -> tuple[Clip, Samples]:
    """The clip with its speech marked, and its track at ``RATE_HZ``. The same voice asks all of a clip.

    :param over: somebody speaks over answers too
    :raises SpeechError: the program can't speak
    :raises ValueError: the clip has no length
    """
    if clip.duration_s is None:
        raise ValueError(f"clip {clip.id!r} has no duration_s")
    seed = zlib.crc32(clip.id.encode())
    noise = np.random.default_rng(seed).standard_normal(round(clip.duration_s * RATE_HZ)) * _FLOOR
    track = np.rint(noise).astype(np.int16)
    name, spoken, free_s = VOICES[seed % len(VOICES)], list[Speech](), 0.0
    for query in clip.queries:
        words = await _words(query.text, name, voice)
        # A question that would reach into the one before it, or before the start, ends later.
        start = round(max(query.at_s - len(words) / RATE_HZ, free_s) * RATE_HZ)
        heard = words[: len(track) - start]
        track[start : start + len(heard)] += heard
        end_s = (start + len(heard)) / RATE_HZ
        spoken.append(Speech(id=f"speech-{query.id}", start_s=start / RATE_HZ, end_s=end_s, text=query.text))
        free_s = end_s + _PAUSE_S
    ends = [*(speech.start_s for speech in spoken[1:]), clip.duration_s]
    for number, (query, asked, end_s) in enumerate(zip(clip.queries, tuple(spoken), ends, strict=True)):
        if not over or not any(slot.start_s <= query.at_s for slot in clip.slots_of(query.id)):
            continue
        stops = (seed + number) % 2 == 0
        text = (STOPS if stops else GOES_ON)[number % len(STOPS)]
        words = await _words(text, name, voice)
        start = round((asked.end_s + OVER_S) * RATE_HZ)
        if (start + len(words)) / RATE_HZ + _PAUSE_S <= end_s:
            track[start : start + len(words)] += words
            spoken.append(
                Speech(
                    id=f"over-{query.id}",
                    start_s=start / RATE_HZ,
                    end_s=(start + len(words)) / RATE_HZ,
                    text=text,
                    expects=Expected.STOP if stops else Expected.GO_ON,
                )
            )
    return clip.model_copy(update={"speech": tuple(sorted(spoken, key=lambda one: one.start_s))}), track


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
