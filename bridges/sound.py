"""Sound on its way from a synthesiser: bytes to samples, one rate, no silence at the joints, short chunks.

All of it is PCM16 mono, little-endian where it is bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

from bridges.speech import SpeechError

Samples = NDArray[np.int16]

_QUIET = 200
"""Peak below which a sample counts as silence, of 32767."""
_HEADER_LIMIT = 64 * 1024


class Wav:
    """Reads a WAV stream as it comes. Sizes in its header are not believed: who streams does not know them.

    :raises SpeechError: ``speech_format``: not WAV, or samples of another kind than PCM16
    """

    def __init__(self) -> None:
        self._header = b""
        self._channels = 0
        self._spare = b""
        self.rate_hz: int | None = None
        """Known once the header was read."""

    def push(self, data: bytes) -> Samples:
        """The samples that are complete with these bytes, channels mixed to one."""
        if self.rate_hz is None:
            self._header += data
            body = self._read_header()
            if body is None:
                return np.zeros(0, np.int16)
            data, self._header = body, b""
        whole = self._spare + data
        size = 2 * self._channels
        cut = len(whole) - len(whole) % size
        self._spare = whole[cut:]
        samples = np.frombuffer(whole[:cut], "<i2").astype(np.int16)
        if self._channels == 1:
            return samples
        mixed: Samples = samples.reshape(-1, self._channels).mean(axis=1).astype(np.int16)
        return mixed

    def _read_header(self) -> bytes | None:
        header = self._header
        if not b"RIFF".startswith(header[:4]) and header[:4] != b"RIFF":
            raise SpeechError("speech_format", "the sound is no WAV")
        at, rate = 12, 0
        while len(header) >= at + 8:
            name, size = header[at : at + 4], int.from_bytes(header[at + 4 : at + 8], "little")
            if name == b"data":
                if not rate:
                    raise SpeechError("speech_format", "a WAV without a format")
                self.rate_hz = rate
                return header[at + 8 :]
            if name == b"fmt " and len(header) >= at + 24:
                kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", header, at + 8)
                if (
                    kind not in (1, 0xFFFE)
                    or bits != 16
                    or not 1 <= channels <= 8
                    or not 4000 <= rate <= 192000
                ):
                    raise SpeechError("speech_format", f"WAV of kind {kind}, {bits} bits, {rate} Hz")
                self._channels = channels
            at += 8 + size + size % 2
        if len(header) > _HEADER_LIMIT:
            raise SpeechError("speech_format", "a WAV without samples")
        return None


class Sound:
    """One piece of speech: resampled with state, its silent edges shortened, in chunks.

    :param rate_in: of the samples that come; ``rate_out``: of those that go
    :param chunk_ms: no chunk is longer
    :param lead_ms: silence that is left before the first sound; ``tail_ms``: behind the last
    """

    def __init__(
        self, rate_in: int, rate_out: int, *, chunk_ms: int = 100, lead_ms: int = 30, tail_ms: int = 150
    ) -> None:
        self._resample = (
            None if rate_in == rate_out else soxr.ResampleStream(rate_in, rate_out, 1, dtype="int16")
        )
        self._chunk = rate_out * chunk_ms // 1000
        self._lead = rate_out * lead_ms // 1000
        self._tail = rate_out * tail_ms // 1000
        self._begun = False
        self._silence = np.zeros(0, np.int16)
        self._ready = np.zeros(0, np.int16)

    def push(self, samples: Samples, *, last: bool = False) -> Iterator[Samples]:
        """The chunks that are complete with these samples; with ``last`` all that is left."""
        if self._resample is not None:
            samples = self._resample.resample_chunk(samples, last=last)
        self._take(samples)
        if last and self._begun:
            self._ready = np.concatenate([self._ready, self._silence[: self._tail]])
        while len(self._ready) >= self._chunk or (last and len(self._ready)):
            chunk, self._ready = self._ready[: self._chunk], self._ready[self._chunk :]
            yield chunk

    def _take(self, samples: Samples) -> None:
        """Silence waits until it is known to stand between sounds."""
        loud = np.flatnonzero(np.abs(samples.astype(np.int32)) >= _QUIET)
        if not len(loud):
            self._silence = np.concatenate([self._silence, samples])
            if not self._begun:
                self._silence = self._silence[len(self._silence) - min(len(self._silence), self._lead) :]
            return
        until = int(loud[-1]) + 1
        sound = np.concatenate([self._silence, samples[:until]])
        if not self._begun:
            before = len(self._silence) + int(loud[0])
            sound = sound[max(0, before - self._lead) :]
        self._begun = True
        self._ready = np.concatenate([self._ready, sound])
        self._silence = samples[until:]
