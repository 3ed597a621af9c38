"""Recorded speech whose words are known: from Debian's pocketsphinx-testdata, read for LibriVox."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = Path("/usr/share/pocketsphinx/test/data/librivox")
PACKAGE = "pocketsphinx-testdata"
RATE_HZ = 16000

Samples = npt.NDArray[np.float32]
_LINE = re.compile(r"<s> (.*) </s> \((.*)\)")


class RecordingMissing(Exception):
    """The package is not installed. The message says how to install it."""


def recordings() -> dict[str, tuple[Samples, str]]:
    """Samples at 16 kHz and their words in lower case, by name."""
    try:
        lines = (FOLDER / "transcription").read_text().splitlines()
    except OSError as missing:
        raise RecordingMissing(f"recorded speech comes with Debian's {PACKAGE}: make system") from missing
    found = [match for line in lines if (match := _LINE.match(line.strip()))]
    return {
        name[-4:]: (_samples(FOLDER / f"{name}.wav"), words) for words, name in (m.groups() for m in found)
    }


def silence(seconds: float, level: float = 0.0, seed: int = 1) -> Samples:
    """Faint noise of that standard deviation, or nothing at all."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ)) * level
    return noise.astype(np.float32)


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """Words wrong, missing or too many, and words that were said. Case and punctuation do not count."""
    wanted, got = _words(said), _words(heard)
    row = list(range(len(got) + 1))
    for index, word in enumerate(wanted, 1):
        before, row[0] = row[0], index
        for at, other in enumerate(got, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (word != other))
    return row[-1], len(wanted)


def _words(text: str) -> list[str]:
    spelled = text.lower().replace("mr.", "mister").replace("-", " ")
    return re.findall(r"[\w']+", spelled)


def _samples(path: Path) -> Samples:
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / np.float32(32768)
