"""Samples on their way: WAV however it is cut, one rate, no silent joints, short chunks."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.sound import Samples, Sound, Wav
from bridges.speech import SpeechError


def wav_of(samples: Samples, rate: int = 16000, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((channels, 2, rate, 0, "NONE", ""))
        out.writeframes(np.repeat(samples, channels).astype("<i2").tobytes())
    return file.getvalue()


def tone(ms: int, rate: int) -> Samples:
    return (8000 * np.sin(np.arange(rate * ms // 1000) * 0.2)).astype(np.int16)


@given(st.lists(st.integers(1, 700), max_size=40), st.sampled_from([1, 2]))
def test_a_wav_is_read_however_it_is_cut(cuts: list[int], channels: int) -> None:
    samples, wav, at = tone(50, 16000), Wav(), 0
    data = wav_of(samples, channels=channels)
    got = []
    for cut in [*cuts, len(data)]:
        got.append(wav.push(data[at : at + cut]))
        at += cut
    assert wav.rate_hz == 16000
    assert np.array_equal(np.concatenate(got), samples)


@pytest.mark.parametrize("data", [b'{"error": 1}', b"RIFF\0\0\0\0WAVEdata\0\0\0\0", b"ID3\4" + b"\0" * 100])
def test_what_is_no_wav_is_refused(data: bytes) -> None:
    with pytest.raises(SpeechError, match="speech_format"):
        Wav().push(data)


@given(st.lists(st.integers(0, 4000), max_size=20), st.sampled_from([16000, 22050, 24000, 44100]))
def test_silent_edges_go_and_pauses_stay(cuts: list[int], rate: int) -> None:
    quiet = np.zeros(rate // 2, np.int16)
    whole = np.concatenate([quiet, tone(300, rate), quiet, tone(300, rate), quiet])
    sound, chunks, at = Sound(rate, 24000, chunk_ms=100, lead_ms=30, tail_ms=150), [], 0
    for cut in [*cuts, len(whole)]:
        chunks += sound.push(whole[at : at + cut])
        at += cut
    chunks += sound.push(whole[:0], last=True)
    assert all(0 < len(chunk) <= 2400 for chunk in chunks)
    total_ms = sum(map(len, chunks)) / 24
    assert total_ms == pytest.approx(30 + 300 + 500 + 300 + 150, abs=15)


def test_silence_alone_is_no_sound() -> None:
    sound = Sound(16000, 24000)
    assert not list(sound.push(np.zeros(16000, np.int16)))
    assert not list(sound.push(np.zeros(0, np.int16), last=True))
