"""Packets on one media clock: no sample lost or doubled, pictures on their second, silence without a seam."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.offline.timeline import Packet, Recording, Timeline
from orchestrator.wire.audio import Codec, pcm16_to_float


def sound(ms: float, rate: int = 16000, name: str = "a.wav", pictures: tuple[bytes, ...] = ()) -> Recording:
    samples = (0.5 * np.sin(np.arange(round(rate * ms / 1000)) * 0.05)).astype(np.float32)
    return Recording(name, samples, rate, pictures)


def packets(timeline: Timeline) -> list[Packet]:
    return [packet for turn in timeline.turns for packet in turn]


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=3),
    st.integers(0, 2500),
    st.sampled_from([8000, 16000, 24000]),
)
def test_packets_follow_each_other_without_a_seam(lengths: list[int], tail_ms: int, rate: int) -> None:
    timeline = Timeline([sound(ms, rate) for ms in lengths], rate_hz=rate, tail_ms=tail_ms)
    cut = packets(timeline)
    assert cut[0].start_ms == 0 and cut[-1].end_ms == timeline.duration_ms
    assert all(a.end_ms == b.start_ms for a, b in pairwise(cut))
    assert all(packet.end_ms - packet.start_ms <= 200.001 for packet in cut)
    assert sum(len(packet.data) // 2 for packet in cut) == pytest.approx(
        sum(sound(ms, rate).samples.size + rate * tail_ms // 1000 for ms in lengths)
    )
    for packet in cut:
        assert len(packet.data) // 2 == round((packet.end_ms - packet.start_ms) * rate / 1000)


def test_silence_runs_on_the_same_clock_and_takes_pictures_along() -> None:
    """1.4 s of sound and 1 s of silence show pictures at 1 and at 2 s."""
    timeline = Timeline([sound(1400, pictures=(b"one", b"two", b"three"))], tail_ms=1000)
    shown = [(p.picture_times_ms, p.pictures) for p in packets(timeline) if p.pictures]
    assert shown == [((1000,), (b"one",)), ((2000,), (b"two",))]
    assert [p.silence for p in packets(timeline)] == [False] * 7 + [True] * 5
    assert not any(pcm16_to_float(p.data).any() for p in packets(timeline) if p.silence)


def test_the_last_picture_stays_when_the_sound_outlives_the_clip() -> None:
    timeline = Timeline([sound(3000, pictures=(b"one",))], tail_ms=0)
    assert [p.pictures for p in packets(timeline) if p.pictures] == [(b"one",)] * 3


def test_recordings_at_other_rates_are_resampled_whole() -> None:
    timeline = Timeline([sound(1000, 48000)], rate_hz=16000, tail_ms=0)
    assert timeline.duration_ms == pytest.approx(1000, abs=1)


def test_float_samples_where_a_model_wants_them() -> None:
    timeline = Timeline([sound(80, 24000)], rate_hz=24000, codec=Codec.FLOAT32, tail_ms=0, unit_ms=80)
    (packet,) = packets(timeline)
    assert len(packet.data) == 4 * 1920 and np.isfinite(np.frombuffer(packet.data, "<f4")).all()


def test_the_record_names_units_frames_silence_and_window() -> None:
    two = [sound(1400, pictures=(b"one",)), sound(600, name="b.wav")]
    timeline = Timeline(two, tail_ms=1000)
    record = timeline.record(
        {"capabilities": {"chunk_period_ms": 1000, "input_modes": ["append_audio_chunk"]}},
        {"sliding_window_mode": "basic"},
    )
    assert [(span["name"], span["start_ms"], span["end_ms"]) for span in record["inputs"]] == [
        ("a.wav", 0.0, 1400.0),
        ("b.wav", 2400.0, 3000.0),
    ]
    assert record["tail_silence"] == [
        {"start_ms": 1400.0, "end_ms": 2400.0},
        {"start_ms": 3000.0, "end_ms": 4000.0},
    ]
    assert [(unit["unit"], unit["silence"], unit["frames"]) for unit in record["units"]] == [
        (0, False, [1000]),
        (1, False, [2000]),
        (2, False, []),
        (3, True, []),
    ]
    assert [frame["time_ms"] for frame in record["frames"]] == [1000, 2000]
    assert record["window"]["sliding_window_mode"] == "basic"
    assert record["window"]["chunk_period_ms"] == 1000 and record["window"]["context_max_units"] is None
