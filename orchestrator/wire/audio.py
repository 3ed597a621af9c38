"""Audio codecs of the protocol: format names, base64, PCM16, float32, G.711 and WAV, with resampling.

Everything inside Vigil is float32 mono in [-1, 1]; shapes are ``(samples,)``. Stateful pieces (a spare
odd byte, a resampler's filter) belong to one stream and live in ``AudioInput`` and ``AudioOutput``.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import wave
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

from orchestrator.wire.errors import InvalidRequest

Samples = npt.NDArray[np.float32]

MIN_RATE, MAX_RATE = 8000, 192_000


class Codec(StrEnum):
    PCM16 = "pcm16"
    FLOAT32 = "pcm_f32le"
    ULAW = "g711_ulaw"
    ALAW = "g711_alaw"
    WAV = "wav"


_INPUT_NAMES = {
    **dict.fromkeys(("pcm16", "pcm_s16le", "s16le", "audio/pcm", "pcm", "audio/pcm16"), Codec.PCM16),
    **dict.fromkeys(("pcm_f32le", "f32le", "audio/pcm_f32le"), Codec.FLOAT32),
    **dict.fromkeys(("g711_ulaw", "g711-ulaw", "ulaw", "mulaw", "audio/g711_ulaw", "audio/pcmu"), Codec.ULAW),
    **dict.fromkeys(("g711_alaw", "g711-alaw", "alaw", "audio/g711_alaw", "audio/pcma"), Codec.ALAW),
}
_OUTPUT_NAMES = {
    **{name: codec for name, codec in _INPUT_NAMES.items() if codec is not Codec.FLOAT32},
    "wav": Codec.WAV,
    "audio/wav": Codec.WAV,
}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A codec and, if it was stated, a rate in Hz."""

    codec: Codec
    rate: int | None = None


def parse_format(value: Any, *, output: bool = False, param: str = "input_audio_format") -> AudioFormat:
    """A format as a client spells it: a name, or ``{"type": name, "rate": Hz}``.

    Raises ``InvalidRequest`` ``unsupported_audio_format``.
    """
    name, rate = (value.get("type"), value.get("rate")) if isinstance(value, dict) else (value, None)
    names = _OUTPUT_NAMES if output else _INPUT_NAMES
    codec = names.get(name.lower()) if isinstance(name, str) else None
    if codec is None:
        kind = "output" if output else "input"
        raise InvalidRequest(
            f"Unsupported {kind}_audio_format: {name!r}.", code="unsupported_audio_format", param=param
        )
    return AudioFormat(codec, None if rate is None else check_rate(rate, param=f"{param}.rate"))


def check_rate(rate: Any, *, param: str = "sample_rate_hz") -> int:
    """A declared rate: a whole number of Hz from 8000 to 192000, else ``bad_event``."""
    whole = isinstance(rate, int | float) and not isinstance(rate, bool) and math.isfinite(rate)
    if not whole or rate != int(rate) or not MIN_RATE <= rate <= MAX_RATE:
        raise InvalidRequest(
            f"{param} is a whole number from {MIN_RATE} to {MAX_RATE}.", code="bad_event", param=param
        )
    return int(rate)


def from_base64(text: str, *, strict: bool = False) -> bytes:
    """Decoded payload; ``bad_audio`` when it can't be. Lenient decoding skips foreign characters."""
    try:
        return base64.b64decode(text, validate=strict)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(
            f"The audio is not valid base64: {error}.", code="bad_audio", param="audio"
        ) from error


def pcm16_to_float(data: bytes) -> Samples:
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(32768.0)


def float_to_pcm16(samples: Samples) -> bytes:
    """PCM16 little-endian; values outside [-1, 1] are clipped."""
    scaled = np.clip(samples * np.float32(32768.0), -32768.0, 32767.0)
    return bytes(np.rint(scaled).astype("<i2").tobytes())


def _ulaw_table() -> Samples:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = (((code & 0x0F) << 3) + 0x84) << ((code & 0x70) >> 4)
    value = magnitude - 0x84
    return (np.where(code & 0x80, -value, value) / 32768.0).astype(np.float32)


def _alaw_table() -> Samples:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code & 0x70) >> 4, (code & 0x0F) << 4
    value = np.where(exponent == 0, mantissa + 8, (mantissa + 0x108) << np.maximum(exponent - 1, 0))
    return (np.where(code & 0x80, value, -value) / 32768.0).astype(np.float32)


# G.711 (ITU-T): decoding is a table of 256 values; encoding picks the nearest one.
_G711: dict[Codec, Samples] = {Codec.ULAW: _ulaw_table(), Codec.ALAW: _alaw_table()}
_G711_ORDER = {codec: np.argsort(table, kind="stable") for codec, table in _G711.items()}


def g711_to_float(data: bytes, codec: Codec) -> Samples:
    return _G711[codec][np.frombuffer(data, dtype=np.uint8)]


def float_to_g711(samples: Samples, codec: Codec) -> bytes:
    order = _G711_ORDER[codec]
    levels = _G711[codec][order]
    right = np.clip(np.searchsorted(levels, samples), 1, len(levels) - 1)
    left = right - 1
    nearer_left = samples - levels[left] <= levels[right] - samples
    return order[np.where(nearer_left, left, right)].astype(np.uint8).tobytes()


def read_wav(data: bytes) -> tuple[Samples, int]:
    """Samples (channels mixed to one) and rate of a 16-bit PCM WAV file, else ``bad_audio``."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            if file.getsampwidth() != 2:
                raise InvalidRequest(
                    "Only 16-bit PCM WAV files are accepted.", code="bad_audio", param="audio"
                )
            channels, rate = file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError) as error:  # the last is what it says of wrong lengths
        raise InvalidRequest(
            f"Not a WAV file: {str(error) or 'it ends too early'}.", code="bad_audio", param="audio"
        ) from error
    samples = pcm16_to_float(frames[: len(frames) // (2 * channels) * 2 * channels])
    return samples.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate


def write_wav(samples: Samples, rate: int) -> bytes:
    """A self-contained 16-bit mono WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(float_to_pcm16(samples))
    return out.getvalue()


class Resampler:
    """Stateful mono resampling; feeding a signal in any pieces gives the same samples.

    :param source: Hz in; :param target: Hz out
    """

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        self._stream = None if source == target else soxr.ResampleStream(source, target, 1, dtype="float32")
        self._taken = self._given = 0

    def at_most(self, count: int) -> int:
        """How many samples ``push`` of that many may give."""
        return -(-(self._taken + count) * self.target // self.source) - self._given

    def push(self, samples: Samples, *, last: bool = False) -> Samples:
        """Samples that are ready now; ``last`` flushes the filter and ends the stream."""
        if self._stream is None:
            return samples
        out: Samples = self._stream.resample_chunk(samples, last=last)
        self._taken, self._given = self._taken + samples.size, self._given + out.size
        if last:
            self._taken = self._given = 0
            self._stream = soxr.ResampleStream(self.source, self.target, 1, dtype="float32")
        return out


class AudioInput:
    """One client audio stream on its way to a model: decodes, carries a spare byte, resamples.

    :param target: float32 samples leave at this rate in Hz

    A stream keeps one source rate; ``finish`` ends it (the next append starts a fresh one).
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._spare = b""
        self._resampler: Resampler | None = None

    def decode(
        self, payload: str, fmt: AudioFormat, default_rate: int, room: Callable[[int], None] = lambda _: None
    ) -> Samples:
        """Samples at ``target`` Hz.

        :param room: told how many bytes of samples there may be; what it raises leaves the stream alone

        Raises ``InvalidRequest``: ``bad_audio`` (not decodable, not finite), ``bad_event`` (a rate that
        changes within a stream, or a float stream whose rate is not the model's). On an error the
        stream is as it was before.
        """
        rate = fmt.rate or (8000 if fmt.codec in _G711 else default_rate)
        if fmt.codec is Codec.FLOAT32:
            samples = self._float32(payload, rate)
            room(samples.nbytes)
            return samples
        data = from_base64(payload)
        spare = b""
        if fmt.codec is Codec.WAV:
            samples, rate = read_wav(data)
        elif fmt.codec is Codec.PCM16:
            data = self._spare + data
            whole = len(data) // 2 * 2
            data, spare = data[:whole], data[whole:]
            samples = pcm16_to_float(data)
        else:
            samples = g711_to_float(data, fmt.codec)
        if self._resampler is not None and self._resampler.source != rate:
            raise InvalidRequest(
                f"The rate changed from {self._resampler.source} to {rate} Hz within a stream.",
                code="bad_event",
                param="sample_rate_hz",
            )
        resampler = self._resampler or Resampler(check_rate(rate), self.target)
        room(4 * resampler.at_most(samples.size))
        self._resampler, self._spare = resampler, spare
        return resampler.push(samples)

    def _float32(self, payload: str, rate: int) -> Samples:
        if rate != self.target:
            raise InvalidRequest(
                f"pcm_f32le is taken at {self.target} Hz only; it was declared as {rate} Hz.",
                code="bad_event",
                param="sample_rate_hz",
            )
        data = from_base64(payload, strict=True)
        if len(data) % 4:
            raise InvalidRequest("pcm_f32le has four bytes a sample.", code="bad_audio", param="audio")
        samples = np.frombuffer(data, dtype="<f4").astype(np.float32)
        if not np.isfinite(samples).all():
            raise InvalidRequest("The audio has values that are not finite.", code="bad_audio", param="audio")
        return samples

    def finish(self) -> Samples:
        """End the item: what the filter still holds; a spare odd byte is dropped with it."""
        tail = (
            self._resampler.push(np.zeros(0, np.float32), last=True)
            if self._resampler is not None
            else np.zeros(0, np.float32)
        )
        self._spare, self._resampler = b"", None
        return tail


def output_rate(fmt: AudioFormat, rate: int) -> int:
    """Hz in which speech of that rate is sent: its own, unless it is G.711."""
    return (fmt.rate or 8000) if fmt.codec in _G711 else rate


class AudioOutput:
    """One response's audio on its way to a client: encodes, resampling only for G.711.

    :param rate: Hz of the samples that go in
    """

    def __init__(self, fmt: AudioFormat, rate: int) -> None:
        self.codec = fmt.codec
        self.rate = output_rate(fmt, rate)
        self._resampler = Resampler(rate, self.rate)

    def encode(self, samples: Samples, *, last: bool = False) -> bytes:
        """Encoded bytes; chunks concatenate in order, except WAV ones, which are files of their own."""
        samples = self._resampler.push(samples, last=last)
        if self.codec is Codec.WAV:
            return write_wav(samples, self.rate)
        if self.codec in _G711:
            return float_to_g711(samples, self.codec)
        return float_to_pcm16(samples)
