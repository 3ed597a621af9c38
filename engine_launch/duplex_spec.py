"""What a full-duplex engine is expected to be, as plain values, and the events of a trial session with it."""

from __future__ import annotations

import base64
import io
import math
import wave
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine_launch.client import picture

TONE_HZ = 220.0
REFERENCE_RATE_HZ = 16000


@dataclass(frozen=True, slots=True)
class DuplexSpec:
    """One family, as its profile has it.

    :param capabilities: what its engine is expected to advertise
    :param required: modalities of an append it may insist on; ``optional``: those it must take besides
    :param unit_samples: of one append, ``unit_ms`` of audio in ``input_format`` (``pcm16``, ``pcm_f32le``)
    :param frames: an append carries a picture
    :param turns: it answers commits; otherwise the model decides when to speak
    :param reference_audio: a voice must be shown to it before it may speak
    :param voice: named at open; ``extra_body`` is sent along
    """

    family: str
    capabilities: Mapping[str, Any]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    unit_ms: int
    unit_samples: int
    input_rate_hz: int
    input_format: str
    output_rate_hz: int
    max_sessions: int
    output: tuple[str, ...] = ("text", "audio")
    turns: bool = False
    frames: bool = False
    reference_audio: bool = False
    voice: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def opening(self, model: str) -> dict[str, Any]:
        """The session object that a trial session opens with."""
        session: dict[str, Any] = {
            "type": "realtime",
            "model": model,
            "modalities": list(self.output),
            "input_audio_format": self.input_format,
            "sample_rate_hz": self.input_rate_hz,
            "output_audio_format": "pcm16",
            "turn_detection": None,
            "extra_body": {"auto_response": not self.turns, **self.extra_body},
        }
        if self.reference_audio:
            session["ref_audio"] = _tone_url()
        if self.voice is not None:
            session["voice"] = self.voice
        return session

    def append(self, number: int) -> dict[str, Any]:
        """Unit ``number`` (from 0) of a quiet tone, with a picture where the family looks."""
        event: dict[str, Any] = {
            "type": "input_audio_buffer.append",
            "audio": base64.b64encode(self._pcm(number)).decode(),
            "format": self.input_format,
            "sample_rate_hz": self.input_rate_hz,
            "duration_ms": self.unit_ms,
            "audio_end_ms": (number + 1) * self.unit_ms,
            "is_speech": True,
        }
        if self.frames:
            event["video_frames"] = [base64.b64encode(picture(number, 224)).decode()]
        return event

    def _pcm(self, number: int) -> bytes:
        samples = _tone(number * self.unit_samples, self.unit_samples, self.input_rate_hz)
        return _pcm16(samples) if self.input_format == "pcm16" else samples.astype("<f4").tobytes()


def _tone(first: int, samples: int, rate_hz: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return 0.1 * np.sin(2 * math.pi * TONE_HZ * (first + np.arange(samples)) / rate_hz)


def _pcm16(samples: np.ndarray[Any, np.dtype[np.float64]]) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def _tone_url() -> str:
    """A second of tone as a data URL: a voice to show to models that want one."""
    data = io.BytesIO()
    with wave.open(data, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(REFERENCE_RATE_HZ)
        sound.writeframes(_pcm16(_tone(0, REFERENCE_RATE_HZ, REFERENCE_RATE_HZ)))
    return "data:audio/wav;base64," + base64.b64encode(data.getvalue()).decode()
