"""What waits for a tick: capture order, repeats, late frames, thinning, and giving frames back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.facts import FrameSeen
from memory.open_turn import MAX_DELIVERIES, MAX_INTERRUPTIONS, RECENT_IDS, Delivery, Flight, OpenTurn


def seen(ms: int, frame_id: str | None = None, lossless: bool = False) -> FrameSeen:
    frame_id = frame_id or f"f{ms}"
    return FrameSeen(
        frame_id=frame_id, uuid=f"u-{frame_id}", media_time_ms=ms, width=8, height=8, size=1,
        lossless=lossless,
    )  # fmt: skip


def turn(*times: int, lossless: bool = False) -> OpenTurn:
    waiting = OpenTurn()
    for ms in times:
        waiting.see(seen(ms, lossless=lossless), 10)
    return waiting


def begin(waiting: OpenTurn, most: int = 4) -> None:
    frames = waiting.next_frames(most)
    waiting.begin(
        Flight(0, frames[-1].ref.media_time_ms, frames, (), (), (), (), len(waiting.interruptions),
               tuple(waiting.deliveries))
    )  # fmt: skip


def times(waiting: OpenTurn) -> list[int]:
    return [w.ref.media_time_ms for w in waiting.frames]


def test_frames_wait_in_capture_order() -> None:
    assert times(turn(2000, 1000, 3000, 1500)) == [1000, 1500, 2000, 3000]


def test_a_repeated_frame_id_is_not_a_new_frame() -> None:
    waiting = turn(1000)
    assert not waiting.see(seen(1000), 10)
    assert times(waiting) == [1000] and waiting.dropped["duplicate"] == 1
    waiting.drop("f1000", "duplicate")  # the drop of the repeat leaves the frame that came first
    assert times(waiting) == [1000]


def test_the_ids_remembered_are_bounded() -> None:
    waiting = OpenTurn()
    for ms in range(RECENT_IDS + 100):
        waiting.see(seen(ms), 1)
        waiting.frames.clear()
    assert len(waiting._ids) == RECENT_IDS


def test_a_frame_older_than_what_is_shown_or_riding_is_late() -> None:
    waiting = turn(1000, 2000)
    begin(waiting)
    assert not waiting.see(seen(1500), 10)
    waiting.commit()
    assert not waiting.see(seen(1600), 10)
    assert waiting.see(seen(2000, "same time"), 10)
    assert [ref.media_time_ms for ref in waiting.late] == [1500, 1600]
    waiting.drop("f1500", "late")
    assert [ref.media_time_ms for ref in waiting.late] == [1600]


def test_a_failed_tick_gives_its_frames_back_before_newer_ones() -> None:
    waiting = turn(1000, 2000)
    begin(waiting)
    waiting.see(seen(3000), 10)
    assert times(waiting) == [3000]
    waiting.fail()
    assert times(waiting) == [1000, 2000, 3000]
    waiting.see(seen(500), 10)
    assert times(waiting) == [500, 1000, 2000, 3000]  # nothing was shown, so nothing is late


def test_a_frame_dropped_while_riding_does_not_come_back() -> None:
    waiting = turn(1000, 2000)
    begin(waiting)
    waiting.drop("f1000", "quarantined")
    waiting.fail()
    assert times(waiting) == [2000]


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=40, unique=True), st.integers(1, 6))
def test_thinning_keeps_the_ends_and_the_number(ms: list[int], keep: int) -> None:
    waiting = turn(*ms)
    gone = waiting.surplus(keep)
    for ref in gone:
        waiting.drop(ref.frame_id, "thinned")
    assert len(waiting.frames) == min(len(ms), keep)
    assert times(waiting)[-1] == max(ms)
    if keep > 1:
        assert times(waiting)[0] == min(ms)
    assert waiting.dropped["thinned"] == len(gone)


def test_thinning_takes_the_middle_evenly() -> None:
    waiting = turn(*range(0, 9000, 1000))
    gone = {ref.media_time_ms for ref in waiting.surplus(3)}
    kept = [ms for ms in range(0, 9000, 1000) if ms not in gone]
    assert kept[0] == 0 and kept[2] == 8000 and 2000 <= kept[1] <= 6000


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_lossless_frames_are_never_thinned(lossless: list[bool]) -> None:
    waiting = OpenTurn()
    for ms, keep in enumerate(lossless):
        waiting.see(seen(ms, lossless=keep), 10)
    assert not {ref.frame_id for ref in waiting.surplus(2)} & {
        w.ref.frame_id for w in waiting.frames if w.lossless
    }


def test_lossless_frames_ride_later_ticks_in_order() -> None:
    waiting = turn(*range(10), lossless=True)
    shown = []
    while waiting.frames:
        begin(waiting, most=4)
        shown += [w.ref.media_time_ms for w in waiting.commit().frames]
    assert shown == list(range(10))


def test_notes_that_come_while_a_tick_is_in_flight_stay_for_the_next() -> None:
    waiting = turn(1000)
    waiting.interrupt("r1", "one")
    waiting.deliver(Delivery("q", "a", True, 0))
    begin(waiting)
    waiting.interrupt("r2", "two")
    waiting.deliver(Delivery("q2", "b", True, 0))
    waiting.commit()
    assert waiting.interruptions == [("r2", "two")]
    assert [d.question for d in waiting.deliveries] == ["q2"]


def test_queues_are_bounded_and_the_riding_part_is_safe() -> None:
    waiting = turn(1000)
    waiting.interrupt("riding", "")
    waiting.deliver(Delivery("riding", "", True, 0))
    begin(waiting)
    for number in range(100):
        waiting.interrupt(f"r{number}", "x")
        waiting.deliver(Delivery(f"d{number}", "x", True, 0))
    assert len(waiting.interruptions) == MAX_INTERRUPTIONS + 1
    assert len(waiting.deliveries) == MAX_DELIVERIES + 1
    waiting.commit()
    assert waiting.interruptions[-1][0] == "r99" and waiting.deliveries[-1].question == "d99"


def test_a_corrected_report_on_one_response_replaces_the_first() -> None:
    waiting = turn(1000)
    waiting.interrupt("r1", "three words heard")
    waiting.interrupt("r1", "three")
    assert waiting.interruptions == [("r1", "three")]
