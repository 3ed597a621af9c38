"""``SpeechDetector``: how likely a short window of sound holds speech. One for each session: it remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]
"""Mono in [-1, 1], shape ``(samples,)``."""


class VadError(Exception):
    """The detector can't be had, or broke. The message says what to do."""


class SpeechDetector(Protocol):
    """:param rate_hz: of its samples; ``window``: samples that it is given at a time"""

    @property
    def rate_hz(self) -> int: ...

    @property
    def window(self) -> int: ...

    def probability(self, samples: Samples) -> float:
        """Of speech, 0 to 1, in the next window of the stream. Takes well below a millisecond.

        :raises VadError: it broke; what follows is not heard
        """

    def reset(self) -> None:
        """What follows is no continuation of what was heard."""


DetectorFactory = Callable[[], SpeechDetector]
