"""The splitter: every sample once and in order, exact units, frames in order. And the stream's clock."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.native.units import Origin, Splitter, StreamClock, Unit
from orchestrator.session.units import InputUnit, Modality
from tests.backends.native.harness import frames, ramp

UNIT = 16
"""Samples of one unit in these tests."""


@dataclass(frozen=True)
class Given:
    """One append: samples and pictures."""

    samples: int
    pictures: tuple[bytes, ...] = ()


appends = st.lists(
    st.builds(
        Given,
        st.integers(0, 70),
        st.lists(st.binary(min_size=1, max_size=4), max_size=2).map(tuple),
    ),
    max_size=30,
)


def run(stream: list[Given], *, frame_units: bool) -> tuple[list[Unit], Splitter, int]:
    """Units of a whole stream, closed by its tail; and how many samples went in."""
    splitter = Splitter(UNIT, 1000, frame_units=frame_units)
    units: list[Unit] = []
    count = 0
    for index, each in enumerate(stream):
        if not each.samples and not each.pictures:
            continue
        pcm = ramp(each.samples, count) if each.samples else None
        count += each.samples
        units += splitter.append(InputUnit(frames(*each.pictures), pcm), str(index), flowing=False)
    units += splitter.tail()
    return units, splitter, count


@given(appends, st.booleans())
def test_every_sample_leaves_once_and_in_order(stream: list[Given], frame_units: bool) -> None:
    units, splitter, count = run(stream, frame_units=frame_units)
    left = b"".join(unit.pcm[: len(unit.pcm) - 4 * unit.padded] for unit in units if unit.pcm is not None)
    assert left == ramp(count)
    assert splitter.held.size == 0


@given(appends, st.booleans())
def test_a_unit_is_exact_and_only_what_closed_it_is_padded(stream: list[Given], frame_units: bool) -> None:
    units, _, _ = run(stream, frame_units=frame_units)
    heard = [unit for unit in units if unit.pcm is not None]
    assert all(len(unit.pcm or b"") == 4 * UNIT for unit in heard)
    assert all(unit.padded == 0 for unit in heard if unit.origin is Origin.CLIENT)
    if frame_units:
        assert sum(unit.padded > 0 for unit in heard) <= 1


@given(appends, st.booleans())
def test_units_are_numbered_on_the_streams_own_clock(stream: list[Given], frame_units: bool) -> None:
    units, _, _ = run(stream, frame_units=frame_units)
    heard = [unit for unit in units if unit.pcm is not None]
    assert [unit.number for unit in heard] == list(range(len(heard)))
    assert all((unit.start_ms, unit.end_ms) == (1000 * n, 1000 * n + 1000) for n, unit in enumerate(heard))
    assert [unit.first_audio for unit in heard] == [n == 0 for n in range(len(heard))]


@given(appends, st.booleans())
def test_every_frame_group_leaves_whole_and_at_most_one_with_each_unit(
    stream: list[Given], frame_units: bool
) -> None:
    units, _, _ = run(stream, frame_units=frame_units)
    groups = [each.pictures for each in stream if each.pictures]
    left = [unit.frames for unit in units if unit.frames]
    if frame_units:  # a group alone may pass one that rides
        assert sorted(left) == sorted(groups)
    else:
        assert left == groups


@given(appends, st.booleans())
def test_every_append_is_answered_by_exactly_one_unit(stream: list[Given], frame_units: bool) -> None:
    units, splitter, _ = run(stream, frame_units=frame_units)
    given_in = [str(index) for index, each in enumerate(stream) if each.samples or each.pictures]
    told = [operation for unit in units for operation in unit.operations]
    assert sorted([*told, *splitter.held.operations]) == sorted(given_in)


@given(appends, appends)
def test_a_rollback_leaves_nothing_behind(before: list[Given], refused: list[Given]) -> None:
    splitter = Splitter(UNIT, 1000, frame_units=False)
    for each in before:
        splitter.append(InputUnit(frames(*each.pictures), ramp(each.samples) or None), "a", flowing=True)
    held = splitter.held
    for each in refused:
        splitter.append(InputUnit(frames(*each.pictures), ramp(each.samples) or None), "b", flowing=True)
    splitter.held = held
    again = Splitter(UNIT, 1000, frame_units=False)
    for each in before:
        again.append(InputUnit(frames(*each.pictures), ramp(each.samples) or None), "a", flowing=True)
    assert splitter.tail() == again.tail()


def test_a_frame_rides_the_unit_that_closes_it() -> None:
    splitter = Splitter(10, 1000, frame_units=True)
    units: list[Unit] = []
    for index in range(10):
        pictures = (bytes([index]),) if index in (4, 9) else ()
        units += splitter.append(InputUnit(frames(*pictures), ramp(2)), str(index), flowing=True)
    assert [unit.frames for unit in units] == [(b"\x04",), (b"\x09",)]


def test_a_frame_alone_does_not_wait_for_the_microphone() -> None:
    splitter = Splitter(10, 1000, frame_units=True)
    splitter.append(InputUnit(pcm=ramp(4)), "a", flowing=True)
    (unit,) = splitter.append(InputUnit(frames(b"x")), "b", flowing=True)
    assert (unit.modality, unit.duration_ms, unit.operations) == (Modality.VISION, 0, ("b",))
    (closed,) = splitter.append(InputUnit(pcm=ramp(6)), "c", flowing=True)
    assert (closed.number, closed.first_audio, closed.frames) == (0, True, ())


def test_where_the_engine_takes_no_frame_alone_silence_carries_it_or_the_audio_that_flows() -> None:
    splitter = Splitter(10, 1000, frame_units=False)
    (silent,) = splitter.append(InputUnit(frames(b"x")), "a", flowing=False)
    assert (silent.modality, silent.padded, silent.frames) == (Modality.OMNI, 10, (b"x",))
    assert splitter.append(InputUnit(frames(b"y")), "b", flowing=True) == ()
    (unit,) = splitter.append(InputUnit(pcm=ramp(10)), "c", flowing=True)
    assert (unit.frames, unit.padded, unit.operations) == ((b"y",), 0, ("b", "c"))


def test_what_was_joined_keeps_its_frames_beside_their_samples() -> None:
    joined = InputUnit(pcm=ramp(10)).joined(InputUnit(frames(b"x"), ramp(10))).joined(InputUnit(pcm=ramp(5)))
    splitter = Splitter(10, 1000, frame_units=True)
    units = splitter.append(joined, "a", flowing=False)
    assert [unit.frames for unit in units] == [(), (b"x",)]
    assert [unit.frames for unit in splitter.tail()] == [()]


# --- the clock ----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=40), st.integers(1, 4))
def test_no_unit_is_further_ahead_than_the_lead(pauses: list[float], lead: int) -> None:
    clock, now = StreamClock(1.0, lead), 0.0
    began: float | None = None
    for pause in pauses:
        now += pause
        now = max(now, clock.due() or now)
        clock.went(now)
        began = now if began is None else began
        assert clock.sent <= now - began + lead + 1e-6


def test_slow_writes_do_not_slow_the_clock() -> None:
    clock, now, times = StreamClock(1.0, 2), 0.0, []
    for _ in range(20):
        now = max(now, clock.due() or now)
        clock.went(now)
        times.append(now)
        now += 0.3
    assert times[2:] == [float(n) for n in range(1, 19)]


def test_a_pause_is_no_time_to_make_up_for() -> None:
    clock = StreamClock(1.0, 2)
    clock.went(0.0)
    clock.rested(60.0)
    released = 0
    while (clock.due() or 0.0) <= 60.0:
        clock.went(60.0)
        released += 1
    assert released == 2
