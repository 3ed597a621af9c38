"""A source's pictures and sound as units: all of it, in order, each picture with the sound of its time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.media import MediaFrame, MediaPiece, MediaSound
from orchestrator.source_units import BLOCK_MS, MAX_FRAMES, TimedUnit, Units

RATE = 16000


def frame(time_ms: int) -> MediaFrame:
    return MediaFrame(time_ms, b"jpeg", 8, 8, "camera")


def sound(time_ms: int, length_ms: int = 20, value: float = 0.5) -> MediaSound:
    return MediaSound(time_ms, np.full(RATE * length_ms // 1000, value, "<f4").tobytes(), RATE)


def through(units: Units, pieces: list[MediaPiece]) -> list[TimedUnit]:
    return [unit for piece in pieces for unit in units.add(piece)] + units.finish()


def length_ms(units: list[TimedUnit]) -> float:
    return sum(len(unit.unit.pcm or b"") for unit in units) / 4 * 1000 / RATE


@given(st.lists(st.integers(0, 5000), unique=True, max_size=12), st.integers(0, 5000))
def test_a_picture_rides_the_sound_of_its_time(times: list[int], origin: int) -> None:
    pieces: list[MediaPiece] = [sound(at) for at in range(0, 6000, 20)]
    pieces += [frame(at) for at in times]
    # As they come: by time, and a picture before sound of the same moment.
    pieces.sort(key=lambda piece: (piece.media_time_ms, isinstance(piece, MediaSound)))
    made = Units(origin)
    units = through(made, pieces)
    assert length_ms(units) == 6000
    shown = [(each, unit) for unit in units for each in unit.unit.frames]
    assert len(shown) + made.dropped == len(times)
    assert [each.media_time_ms for each, _ in shown] == sorted(each.media_time_ms for each, _ in shown)
    for each, unit in shown:
        if unit.unit.pcm:
            assert abs(each.media_time_ms - unit.start_ms) <= BLOCK_MS
    assert all(len(unit.unit.frames) <= MAX_FRAMES for unit in units)


@given(st.lists(st.integers(-20, 20), min_size=50, max_size=50))
def test_stamps_that_tremble_change_no_sample(tremble: list[int]) -> None:
    units = through(Units(0), [sound(1000 + at * 20 + off) for at, off in enumerate(tremble)])
    assert length_ms(units) == 50 * 20


def test_lost_sound_is_silence_and_a_long_gap_is_none() -> None:
    units = through(Units(0), [sound(0, 200), sound(500, 200), sound(9000, 200)])
    assert [unit.start_ms for unit in units] == [0, 200, 400, 600, 9000]
    heard = np.concatenate([np.frombuffer(unit.unit.pcm or b"", "<f4") for unit in units[:4]])
    assert (heard[: RATE // 5] == 0.5).all() and (heard[RATE // 5 : RATE // 2] == 0).all()
    again = through(Units(0), [sound(0, 200), sound(100, 200)])
    assert length_ms(again) == 300


def test_pictures_do_not_wait_for_sound_that_has_stopped() -> None:
    units = Units(0)
    assert units.add(frame(0))[0].unit.frames
    units.add(sound(0, 100))
    assert units.add(frame(50)) == []
    late = units.add(frame(3000))
    assert [each.media_time_ms for unit in late for each in unit.unit.frames] == [50, 3000]
    assert length_ms(late) == 100


@given(
    st.lists(st.integers(0, 9000), unique=True, min_size=1, max_size=20),
    st.integers(0, 5000),
    st.integers(0, 9000) | st.none(),
)
def test_where_there_must_be_sound_pictures_bring_silence(
    times: list[int], origin: int, heard_from: int | None
) -> None:
    """Every unit has sound, all of it goes forward, and no picture waits."""
    pieces: list[MediaPiece] = [frame(at) for at in times]
    if heard_from is not None:
        pieces += [sound(at) for at in range(heard_from, heard_from + 2000, 20)]
    pieces.sort(key=lambda piece: (piece.media_time_ms, isinstance(piece, MediaSound)))
    units = through(Units(origin, RATE), pieces)
    assert all(unit.unit.pcm for unit in units)
    end = 0.0
    for unit in units:
        assert unit.start_ms >= end - 1 and unit.duration_ms <= 1200 and unit.unit.pcm is not None
        assert len(unit.unit.pcm) / 4 / RATE * 1000 == pytest.approx(unit.duration_ms, abs=1)
        end = unit.start_ms + unit.duration_ms
    if heard_from is None:
        shown = [each.media_time_ms - origin for unit in units for each in unit.unit.frames]
        assert shown == sorted(times)


def test_a_camera_without_sound_is_a_second_of_silence_a_second() -> None:
    units = through(Units(0, RATE), [frame(at) for at in range(0, 5000, 1000)])
    assert [unit.start_ms for unit in units] == [0, 200, 1000, 2000, 3000]
    assert length_ms(units) == 4000 and not any(any(unit.unit.pcm or b"") for unit in units)
