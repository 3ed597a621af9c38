"""What sessions of a load hear: a recording, cut into pieces of one period."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orchestrator.offline.timeline import Recording, resampled
from orchestrator.wire.audio import read_wav


def periods(wav: Path, rate_hz: int, period_s: float) -> list[bytes]:
    """PCM16 mono of ``period_s`` each; the last one is filled with silence.

    :raises InvalidRequest: the file is no WAV that is understood
    """
    samples, rate = read_wav(wav.read_bytes())
    sound = resampled(Recording(str(wav), samples, rate), rate_hz)
    piece = round(rate_hz * period_s)
    whole = np.concatenate([sound, np.zeros(-sound.size % piece, np.float32)])
    pcm = (np.clip(whole, -1.0, 1.0) * 32767).astype("<i2")
    return [pcm[at : at + piece].tobytes() for at in range(0, pcm.size, piece)]
