"""What is sent when: sound cut into packets on one media clock, and the pictures that ride them. Pure.

Silence after a recording runs on the same clock, so the stream has no seam. A picture rides the packet with
which its second closes: the one of second ``k`` that packet whose end reaches ``(k + 1) * frame_ms``. The
last picture is shown again when the sound outlives the clip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.wire.audio import Codec, Resampler, Samples, float_to_pcm16

PACKET_MS = 200
FRAME_MS = 1000
"""A picture a second, or one a unit where units are longer."""

WINDOW_KEYS = (
    "sliding_window_mode",
    "basic_window_high_tokens",
    "basic_window_low_tokens",
    "context_previous_max_tokens",
    "context_max_units",
)
"""Keys of ``extra_body`` that settle which window of the stream a model keeps."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One input. ``samples`` at any rate; ``pictures``: encoded, one a second."""

    name: str
    samples: Samples
    rate_hz: int
    pictures: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Packet:
    """Times in ms on the media clock. ``silence``: nothing of a recording is in it.

    :param pictures: ride the packet, taken at ``picture_times_ms``
    """

    start_ms: float
    end_ms: float
    data: bytes
    silence: bool
    pictures: tuple[bytes, ...] = ()
    picture_times_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """One recording on the media clock, in ms, and the silence behind it."""

    name: str
    start_ms: float
    end_ms: float
    silence_end_ms: float


class Timeline:
    """Recordings one after the other, each followed by silence.

    :param rate_hz: of what is sent, in ``codec`` (PCM16 or float32)
    :param unit_ms: the model's unit, for the record
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        *,
        rate_hz: int = 16000,
        codec: Codec = Codec.PCM16,
        tail_ms: int = 1000,
        unit_ms: int = 1000,
        packet_ms: int = PACKET_MS,
    ) -> None:
        self.rate_hz, self.codec, self.unit_ms, self.packet_ms = rate_hz, codec, unit_ms, packet_ms
        self.frame_ms = max(FRAME_MS, unit_ms)
        self.spans: list[Span] = []
        self._turns: list[list[Packet]] = []
        samples = 0
        for recording in recordings:
            sound = resampled(recording, rate_hz)
            whole = np.concatenate([sound, np.zeros(rate_hz * tail_ms // 1000, np.float32)])
            self.spans.append(
                Span(
                    recording.name,
                    self._ms(samples),
                    self._ms(samples + sound.size),
                    self._ms(samples + whole.size),
                )
            )
            self._turns.append(list(self._packets(whole, samples, sound.size, recording.pictures)))
            samples += whole.size
        self.duration_ms = self._ms(samples)

    @property
    def turns(self) -> Sequence[Sequence[Packet]]:
        """The packets of each recording."""
        return self._turns

    def record(self, session: Mapping[str, Any], extra_body: Mapping[str, Any]) -> dict[str, Any]:
        """``input_timeline.json``.

        :param session: the server's session object; ``extra_body`` that it was opened with
        """
        packets = [packet for turn in self._turns for packet in turn]
        capabilities = session.get("capabilities") or {}
        return {
            "rate_hz": self.rate_hz,
            "format": self.codec.value,
            "packet_ms": self.packet_ms,
            "unit_ms": self.unit_ms,
            "duration_ms": self.duration_ms,
            "inputs": [
                {"name": span.name, "start_ms": span.start_ms, "end_ms": span.end_ms} for span in self.spans
            ],
            "tail_silence": [{"start_ms": span.end_ms, "end_ms": span.silence_end_ms} for span in self.spans],
            "units": [self._unit(number, packets) for number in range(self._units())],
            "frames": [
                {"time_ms": time, "packet": number}
                for number, packet in enumerate(packets)
                for time in packet.picture_times_ms
            ],
            "packets": len(packets),
            "bytes": sum(len(packet.data) + sum(map(len, packet.pictures)) for packet in packets),
            "window": {
                "chunk_period_ms": capabilities.get("chunk_period_ms"),
                "input_modes": capabilities.get("input_modes"),
                **{key: extra_body.get(key) for key in WINDOW_KEYS},
            },
        }

    def _units(self) -> int:
        return -(-int(self.duration_ms) // self.unit_ms)

    def _unit(self, number: int, packets: Sequence[Packet]) -> dict[str, Any]:
        start, end = number * self.unit_ms, min((number + 1) * self.unit_ms, self.duration_ms)
        heard = any(span.start_ms < end and span.end_ms > start for span in self.spans)
        # A picture that closes a unit belongs to it.
        times = [t for packet in packets for t in packet.picture_times_ms if start < t <= end]
        return {"unit": number, "start_ms": start, "end_ms": end, "frames": times, "silence": not heard}

    def _packets(
        self, samples: Samples, offset: int, heard: int, pictures: Sequence[bytes]
    ) -> Iterator[Packet]:
        size = self.rate_hz * self.packet_ms // 1000
        shown = 0
        for start in range(0, samples.size, size):
            end = min(start + size, samples.size)
            times: list[int] = []
            while pictures and (shown + 1) * self.frame_ms <= end * 1000 / self.rate_hz:
                shown += 1
                times.append(round(self._ms(offset)) + shown * self.frame_ms)
            yield Packet(
                self._ms(offset + start),
                self._ms(offset + end),
                self._encoded(samples[start:end]),
                start >= heard,
                tuple(pictures[min(shown - len(times) + i, len(pictures) - 1)] for i in range(len(times))),
                tuple(times),
            )

    def _encoded(self, samples: Samples) -> bytes:
        if self.codec is Codec.FLOAT32:
            return samples.astype("<f4").tobytes()
        return float_to_pcm16(samples)

    def _ms(self, samples: int) -> float:
        return round(samples * 1000 / self.rate_hz, 3)


def resampled(recording: Recording, rate_hz: int) -> Samples:
    """The whole recording at that rate."""
    return Resampler(recording.rate_hz, rate_hz).push(recording.samples, last=recording.rate_hz != rate_hz)
