"""The real detector: speech is told from silence and noise, at both rates, and streams do not mix."""

from __future__ import annotations

import numpy as np
import pytest

from bridges.vad import Samples, VadError
from bridges.vad_silero import Silero, SileroDetector
from evals.recordings import recordings, silence
from orchestrator.wire.audio import Resampler

NETWORK = Silero()


def probabilities(detector: SileroDetector, samples: Samples) -> list[float]:
    size = detector.window
    return [detector.probability(samples[at : at + size]) for at in range(0, samples.size - size + 1, size)]


def speech(rate: int) -> Samples:
    samples, _ = recordings()["0870"]
    return Resampler(16000, rate).push(samples, last=rate != 16000)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_speech_is_told_from_noise(rate: int) -> None:
    said = probabilities(NETWORK.detector(rate), speech(rate))
    assert np.mean(np.array(said) > 0.5) > 0.6
    for level in (0.0, 0.002, 0.01, 0.05):
        noise = probabilities(NETWORK.detector(rate), silence(20.0, level)[: 20 * rate])
        assert max(noise[10:]) < 0.5, level


def test_streams_side_by_side_are_as_if_alone() -> None:
    one, two = speech(16000), speech(16000)[::-1].copy()
    alone = [probabilities(NETWORK.detector(), each) for each in (one, two)]
    first, second = NETWORK.detector(), NETWORK.detector()
    mixed: tuple[list[float], list[float]] = ([], [])
    for at in range(0, one.size - 511, 512):
        mixed[0].append(first.probability(one[at : at + 512]))
        mixed[1].append(second.probability(two[at : at + 512]))
    assert list(mixed) == alone


def test_a_reset_forgets() -> None:
    detector = NETWORK.detector()
    before = probabilities(detector, speech(16000))
    detector.reset()
    assert probabilities(detector, speech(16000)) == before


def test_it_hears_as_well_after_ten_minutes() -> None:
    detector = NETWORK.detector()
    for _ in range(10):
        probabilities(detector, silence(60.0, 0.002))
    assert np.mean(np.array(probabilities(detector, speech(16000))) > 0.5) > 0.6


def test_other_rates_and_windows_are_refused() -> None:
    with pytest.raises(VadError, match="not at 48000"):
        NETWORK.detector(48000)
    with pytest.raises(VadError, match="512 samples"):
        NETWORK.detector().probability(np.zeros(100, np.float32))
