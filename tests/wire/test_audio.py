"""Codecs: exact where they can be, stateful where the stream is, and clear about what they refuse."""

from __future__ import annotations

import base64
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.wire.audio import (
    AudioFormat,
    AudioInput,
    AudioOutput,
    Codec,
    Resampler,
    check_rate,
    float_to_g711,
    float_to_pcm16,
    g711_to_float,
    parse_format,
    pcm16_to_float,
    read_wav,
    write_wav,
)
from orchestrator.wire.errors import InvalidRequest


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def tone(rate: int, seconds: float) -> np.ndarray:
    t = np.arange(int(rate * seconds)) / rate
    return (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)


@given(st.binary(max_size=400))
def test_pcm16_round_trip_is_exact(data: bytes) -> None:
    data = data[: len(data) // 2 * 2]
    assert float_to_pcm16(pcm16_to_float(data)) == data


@pytest.mark.parametrize("codec", [Codec.ULAW, Codec.ALAW])
def test_g711_decode_then_encode_gives_the_same_level(codec: Codec) -> None:
    every = bytes(range(256))
    levels = g711_to_float(every, codec)
    assert np.array_equal(g711_to_float(float_to_g711(levels, codec), codec), levels)


def test_g711_known_values() -> None:
    """ITU-T G.711: the codes of silence and of the largest level."""
    assert abs(float(g711_to_float(b"\xff", Codec.ULAW)[0])) == 0.0
    assert float(g711_to_float(b"\x00", Codec.ULAW)[0]) == pytest.approx(-32124 / 32768)
    assert float(g711_to_float(b"\xd5", Codec.ALAW)[0]) == pytest.approx(8 / 32768)
    assert float(g711_to_float(b"\x2a", Codec.ALAW)[0]) == pytest.approx(-32256 / 32768)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=12), st.sampled_from([8000, 24000, 44100, 48000]))
def test_resampling_in_pieces_equals_resampling_at_once(cuts: list[int], rate: int) -> None:
    signal = tone(rate, sum(cuts) / rate)
    whole = Resampler(rate, 16000).push(signal, last=True)
    stream, at, parts = Resampler(rate, 16000), 0, []
    for cut in cuts:
        parts.append(stream.push(signal[at : at + cut]))
        at += cut
    parts.append(stream.push(signal[at:], last=True))
    pieces = np.concatenate(parts)
    assert len(pieces) == len(whole)
    assert np.allclose(pieces, whole, atol=1e-5)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=20))
def test_an_odd_byte_is_carried(cuts: list[int]) -> None:
    """Appends of any byte lengths give the samples of their concatenation (a 3-byte and a 5-byte one too)."""
    data = bytes(range(256)) * 2
    stream, at, parts = AudioInput(16000), 0, []
    for cut in cuts:
        parts.append(stream.decode(b64(data[at : at + cut]), AudioFormat(Codec.PCM16), 16000))
        at += cut
    got = np.concatenate(parts)
    assert np.array_equal(got, pcm16_to_float(data[: at // 2 * 2]))


def test_an_odd_byte_does_not_reach_the_next_item() -> None:
    stream = AudioInput(16000)
    stream.decode(b64(b"\x01\x02\x03"), AudioFormat(Codec.PCM16), 16000)
    stream.finish()
    assert np.array_equal(
        stream.decode(b64(b"\x01\x02"), AudioFormat(Codec.PCM16), 16000), pcm16_to_float(b"\x01\x02")
    )


def test_duration_is_kept_within_a_millisecond() -> None:
    for rate in (8000, 24000, 48000):
        stream = AudioInput(16000)
        fmt = AudioFormat(Codec.PCM16, rate)
        parts = [stream.decode(b64(float_to_pcm16(tone(rate, 0.2))), fmt, 16000) for _ in range(5)]
        samples = sum(map(len, parts)) + len(stream.finish())
        assert abs(samples - 16000) <= 16


def test_g711_is_8_khz_unless_declared() -> None:
    stream = AudioInput(16000)
    parts = stream.decode(b64(b"\xff" * 8000), AudioFormat(Codec.ULAW), 16000)
    assert len(parts) + len(stream.finish()) == 16000


@pytest.mark.parametrize(
    ("payload", "fmt", "code"),
    [
        ("!", AudioFormat(Codec.FLOAT32), "bad_audio"),
        (b64(b"\0" * 5), AudioFormat(Codec.FLOAT32), "bad_audio"),
        (b64(np.array([math.nan], "<f4").tobytes()), AudioFormat(Codec.FLOAT32), "bad_audio"),
        (b64(np.array([math.inf], "<f4").tobytes()), AudioFormat(Codec.FLOAT32), "bad_audio"),
        (b64(b"\0" * 4), AudioFormat(Codec.FLOAT32, 24000), "bad_event"),
        (b64(b"RIFFnope"), AudioFormat(Codec.WAV), "bad_audio"),
        ("a", AudioFormat(Codec.PCM16), "bad_audio"),
    ],
)
def test_bad_audio_is_refused_and_changes_nothing(payload: str, fmt: AudioFormat, code: str) -> None:
    stream = AudioInput(16000)
    stream.decode(b64(b"\x01\x02\x03"), AudioFormat(Codec.PCM16), 16000)
    with pytest.raises(InvalidRequest) as caught:
        stream.decode(payload, fmt, 16000)
    assert caught.value.code == code
    rest = stream.decode(b64(b"\x04"), AudioFormat(Codec.PCM16), 16000)
    assert np.array_equal(rest, pcm16_to_float(b"\x03\x04"))


def test_a_rate_change_within_a_stream_is_refused() -> None:
    stream = AudioInput(16000)
    stream.decode(b64(b"\0" * 4), AudioFormat(Codec.PCM16, 24000), 16000)
    with pytest.raises(InvalidRequest, match="rate changed"):
        stream.decode(b64(b"\0" * 4), AudioFormat(Codec.PCM16, 48000), 16000)


@pytest.mark.parametrize("rate", [7999, 192001, 16000.5, True, "16000", math.nan, math.inf])
def test_rates_out_of_bounds(rate: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_rate(rate)
    assert caught.value.code == "bad_event"


def test_format_names() -> None:
    assert parse_format("audio/pcm") == AudioFormat(Codec.PCM16)
    assert parse_format({"type": "audio/pcm", "rate": 24000}) == AudioFormat(Codec.PCM16, 24000)
    assert parse_format("audio/pcmu") == AudioFormat(Codec.ULAW)
    assert parse_format("wav", output=True) == AudioFormat(Codec.WAV)
    for value in ("mp3", None, 3, {}, {"type": "opus"}):
        with pytest.raises(InvalidRequest) as caught:
            parse_format(value)
        assert caught.value.code == "unsupported_audio_format"
    with pytest.raises(InvalidRequest):
        parse_format("pcm_f32le", output=True)


def test_wav_round_trip_and_channels() -> None:
    signal = tone(24000, 0.1)
    samples, rate = read_wav(write_wav(signal, 24000))
    assert rate == 24000
    assert np.allclose(samples, signal, atol=1 / 32768)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, 47), st.integers(0, 255)), max_size=6),
    st.integers(0, 144),
)
def test_any_bytes_are_a_wav_file_or_bad_audio(changes: list[tuple[int, int]], length: int) -> None:
    """Whatever its header says of lengths that are not there."""
    data = bytearray(write_wav(tone(16000, 0.003), 16000)[:length])
    for at, value in changes:
        data[at : at + 1] = bytes([value]) if at < len(data) else b""
    try:
        samples, _ = read_wav(bytes(data))
    except InvalidRequest as refused:
        assert refused.code == "bad_audio"
    else:
        assert np.isfinite(samples).all()


def test_a_wav_file_whose_lengths_are_wrong_is_refused() -> None:
    whole = write_wav(tone(16000, 0.01), 16000)
    for size in (2**32 - 1, 2**31, 1, 0):
        for at in (4, 16, 40):
            data = whole[:at] + size.to_bytes(4, "little") + whole[at + 4 :]
            try:
                read_wav(data)
            except InvalidRequest as refused:
                assert refused.code == "bad_audio"


def test_output_chunks_concatenate() -> None:
    signal = tone(24000, 0.5)
    out = AudioOutput(AudioFormat(Codec.PCM16), 24000)
    assert out.encode(signal[:5000]) + out.encode(signal[5000:], last=True) == float_to_pcm16(signal)
    phone = AudioOutput(AudioFormat(Codec.ULAW), 24000)
    assert len(phone.encode(signal) + phone.encode(signal[:0], last=True)) == 4000
