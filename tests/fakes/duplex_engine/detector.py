"""A stand-in for the engine's voice detector: loud is speech."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.fakes.duplex_engine.script import Samples

LOUD = 0.02


class Detector:
    """One session's detector on the clock of its own input."""

    def __init__(self, vad: Mapping[str, Any]) -> None:
        self._silence_ms = float(vad.get("silence_duration_ms", 500))
        self._padding_ms = float(vad.get("prefix_padding_ms", 300))
        self._now_ms = self._quiet_ms = 0.0
        self._speaking = False

    def hear(self, pcm: Samples, duration_ms: float) -> tuple[bool, int] | None:
        """A change with this audio: (began, at ms of the input's clock)."""
        start = self._now_ms
        self._now_ms += duration_ms
        if float(np.sqrt(np.mean(pcm**2))) >= LOUD:
            self._quiet_ms = 0.0
            if not self._speaking:
                self._speaking = True
                return True, max(0, round(start - self._padding_ms))
            return None
        self._quiet_ms += duration_ms
        if self._speaking and self._quiet_ms >= self._silence_ms:
            self._speaking = False
            return False, round(self._now_ms)
        return None
