"""The window: append-only turns, and how many tokens they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.open_turn import Note, Waiting
from memory.plan import FrameRef, Head, Image, Text, Turn
from memory.window import Window, WindowTurn, first_frame, frame_count, newest, token_count, user_parts


def turn(seq: int, frames: int = 1, tokens: int = 10) -> WindowTurn:
    waiting = tuple(Waiting(FrameRef(f"f{seq}.{i}", "u", seq, 8, 8), 5, False) for i in range(frames))
    return WindowTurn(seq, Turn(seq, (), "said"), waiting, (), seq, tokens)


def window(*turns: WindowTurn) -> Window:
    return Window(0, Head(0, "system", ()), 100, turns)


def test_tokens_are_counted_as_far_as_the_engine_has_then_estimated() -> None:
    live = window(turn(0), turn(1))
    assert live.tokens == 120
    live.append(turn(2), counted=500)
    assert live.tokens == 500
    live.append(turn(3, tokens=7), counted=None)
    assert live.tokens == 507


def test_turns_from_a_place_on_also_after_one_was_deleted() -> None:
    live = window(turn(3), turn(5), turn(6))
    assert [t.seq for t in live.since(0)] == [3, 5, 6]
    assert [t.seq for t in live.since(4)] == [5, 6]
    assert live.since(7) == []
    assert live.first_seq(9) == 3 and window().first_seq(9) == 9


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 30), st.integers(0, 300))
def test_the_newest_turns_within_bounds(frames: list[int], most: int, tokens: int) -> None:
    turns = [turn(seq, count) for seq, count in enumerate(frames)]
    kept = newest(turns, most, tokens)
    assert frame_count(kept) <= most and token_count(kept) <= tokens
    assert list(kept) == turns[len(turns) - len(kept) :]
    if len(kept) < len(turns):
        more = turns[len(turns) - len(kept) - 1 :]
        assert frame_count(more) > most or token_count(more) > tokens


def test_the_first_frame_skips_turns_without_pictures() -> None:
    found = first_frame([turn(0, frames=0), turn(1)])
    assert found and found.media_time_ms == 1
    assert first_frame([turn(0, frames=0)]) is None


def test_a_user_turn_has_notes_then_time_then_pictures() -> None:
    frames = [FrameRef("a", "ua", 0, 8, 8), FrameRef("b", "ub", 500, 8, 8)]
    one_tag = user_parts([Note("note")], ["<0.0 seconds>"], frames)
    assert one_tag == (Text("note\n"), Text("<0.0 seconds>"), Image(frames[0]), Image(frames[1]))
    tag_each = user_parts([], ["<0.0 seconds>", "<0.5 seconds>"], frames)
    assert tag_each == (Text("<0.0 seconds>"), Image(frames[0]), Text("<0.5 seconds>"), Image(frames[1]))
