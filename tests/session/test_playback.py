"""The playback ledger: cursors that only grow, what was heard, whose ack it is, and the wall clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.fence import Fence
from orchestrator.session.playback import PATIENCE_S, Playback, PlaybackBook, PlaybackPolicy, heard_prefix
from orchestrator.wire.errors import VigilError

F0 = Fence()
TEXT = "abcdefghij klmnopqrst"
ACK, WALL = PlaybackPolicy.ACK_ONLY, PlaybackPolicy.WALL_CLOCK


def spoken(total_ms: int = 2000, marks: tuple[tuple[int, int], ...] = ()) -> Playback:
    ledger = Playback("r", F0, spoken=True)
    ledger.generate(total_ms, marks)
    ledger.send(total_ms)
    return ledger


# --- text and time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_ms", "expected"),
    [
        (0, ""),
        (-5, ""),
        (500, "abcde"),
        (1000, "abcdefghij"),
        (1500, "abcdefghij klmn"),
        (1999, "abcdefghij klmnopqr"),
        (2000, TEXT),
        (9000, TEXT),
    ],
)
def test_marks_are_interpolated_and_rounded_down(heard_ms: int, expected: str) -> None:
    assert heard_prefix(TEXT, ((10, 1000), (20, 2000)), 2000, heard_ms) == expected


def test_half_of_the_second_mark_is_fifteen_characters() -> None:
    text = "0123456789" * 2
    assert heard_prefix(text, ((10, 1000), (20, 2000)), 2000, 1500) == text[:15]


def test_without_marks_text_is_proportional_to_time() -> None:
    assert heard_prefix("0123456789", (), 1000, 550) == "01234"


def test_after_the_last_mark_the_rest_is_spread_to_the_end() -> None:
    assert heard_prefix("0123456789", ((4, 1000),), 2000, 1500) == "0123456"


def test_trailing_space_is_trimmed() -> None:
    assert heard_prefix("one two", (), 700, 400) == "one"


def test_marks_in_any_order_and_beyond_the_text() -> None:
    assert heard_prefix("0123456789", ((99, 2000), (5, 1000)), 2000, 1000) == "01234"


@given(
    st.text(max_size=40),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5000)), max_size=6),
    st.integers(0, 5000),
    st.integers(-10, 6000),
)
def test_what_is_heard_is_a_prefix_and_all_at_the_end(
    text: str, marks: list[tuple[int, int]], total: int, heard: int
) -> None:
    prefix = heard_prefix(text, tuple(marks), total, heard)
    assert text.startswith(prefix)
    if total > 0 and heard >= max([total, *(ms for _, ms in marks)]):
        assert prefix == text.rstrip()
    if heard <= 0:
        assert prefix == ""


# --- one ledger --------------------------------------------------------------------------------------


def test_cursors_only_grow() -> None:
    ledger = spoken(3000)
    ledger.ack(1200, 1200)
    ledger.ack(800, 800)
    assert (ledger.played_ms, ledger.committed_ms) == (1200, 1200)


@given(st.lists(st.tuples(st.sampled_from("gsat"), st.integers(0, 3000)), max_size=30))
def test_every_cursor_is_monotone(steps: list[tuple[str, int]]) -> None:
    ledger = Playback("r", F0, spoken=True)
    before = ledger.cursors()
    for step, ms in steps:
        match step:
            case "g":
                ledger.generate(ms)
            case "s":
                ledger.send(ms)
            case "a":
                ledger.ack(ms, ms)
            case "t":
                ledger.truncate(ms)
        after = ledger.cursors()
        assert after.generated_ms >= before.generated_ms
        assert after.sent_ms >= before.sent_ms
        assert after.played_ms >= before.played_ms
        assert after.committed_ms >= before.committed_ms
        before = after


def test_acks_are_not_clamped_to_what_was_sent() -> None:
    ledger = spoken(1000)
    ledger.ack(5000, 5000)
    ledger.end(0.0, "all of it", "completed")
    assert ledger.committed_ms == 5000
    assert ledger.heard() == "all of it"
    assert ledger.heard_whole


def test_a_truncation_caps_what_can_ever_be_heard() -> None:
    text = "0123456789" * 2
    ledger = spoken(2000)
    ledger.end(0.0, text, "completed")
    ledger.truncate(500)
    ledger.ack(2000, 2000)
    assert ledger.heard() == text[:5]
    assert not ledger.heard_whole
    ledger.truncate(1500)
    assert ledger.heard() == text[:5], "the least truncation holds"
    assert not ledger.active(0.0)


@pytest.mark.parametrize("status", ["completed", "incomplete", "cancelled"])
def test_text_alone_is_heard_as_emitted(status: str) -> None:
    ledger = Playback("r", F0, spoken=False)
    ledger.end(0.0, "written", status)
    assert ledger.heard() == "written"
    assert ledger.heard_whole == (status == "completed")


@pytest.mark.parametrize("is_spoken", [True, False])
def test_nothing_of_a_failed_response_counts_as_heard(is_spoken: bool) -> None:
    ledger = Playback("r", F0, spoken=is_spoken)
    ledger.end(0.0, "text", "failed")
    assert ledger.heard() == ""
    assert not ledger.heard_whole


def test_a_spoken_response_without_audio_is_heard_only_if_it_completed() -> None:
    for status, heard in (("completed", "text"), ("cancelled", "")):
        ledger = Playback("r", F0, spoken=True)
        ledger.end(0.0, "text", status)
        assert ledger.heard() == heard


def test_unaligned_text_is_heard_whole_or_not_at_all() -> None:
    ledger = Playback("r", F0, spoken=True, aligned=False)
    ledger.generate(2000)
    ledger.send(2000)
    ledger.end(0.0, "text", "completed")
    ledger.ack(1999, 1999)
    assert ledger.heard() == ""
    ledger.ack(2000, 2000)
    assert ledger.heard() == "text"


def test_a_client_that_never_acks_does_not_play_for_ever() -> None:
    ledger = spoken(2000)
    ledger.end(10.0, "text", "completed")
    assert ledger.active(12.0)
    assert ledger.active(10.0 + 2.0 + PATIENCE_S)
    assert not ledger.active(10.1 + 2.0 + PATIENCE_S)
    assert ledger.unplayed


# --- whose ack ---------------------------------------------------------------------------------------


def book(*names: str) -> PlaybackBook:
    made = PlaybackBook(ACK)
    for name in names:
        ledger = made.open(name, F0, spoken=True)
        ledger.generate(1000)
        ledger.send(1000)
    return made


def ack(ledgers: PlaybackBook, name: str, played: float, committed: float | None = None) -> Playback:
    ledger = ledgers.get(name)
    assert ledger is not None
    ledgers.apply(ledger, played, committed)
    return ledger


def test_an_ack_finds_its_response_by_id_item_or_context() -> None:
    ledgers = book("a", "b")
    for response_id, item_id, active, expected in (
        ("a", None, "b", "a"),
        (None, "item_a", "b", "a"),
        ("a", "item_a", "b", "a"),
        (None, None, "b", "b"),  # two are being played: the active one is meant
    ):
        target = ledgers.target(0.0, response_id, item_id, active)
        assert target is not None
        assert target.response_id == expected


def test_the_only_one_being_played_is_meant_before_the_active_one() -> None:
    ledgers = book("a", "b")
    ack(ledgers, "b", 1000)
    target = ledgers.target(0.0, None, None, "b")
    assert target is not None
    assert target.response_id == "a"


def test_nothing_to_play_means_no_ledger() -> None:
    assert PlaybackBook(ACK).target(0.0, None, None, None) is None


@pytest.mark.parametrize(
    ("response_id", "item_id", "code"),
    [
        ("a", "item_other", "playback_item_mismatch"),
        ("zzz", None, "playback_item_not_found"),
        (None, "item_zzz", "playback_item_not_found"),
        (None, "a", "playback_item_not_found"),
    ],
)
def test_acks_that_mean_nothing(response_id: str | None, item_id: str | None, code: str) -> None:
    with pytest.raises(VigilError) as refused:
        book("a").target(0.0, response_id, item_id, None)
    assert refused.value.code == code


def test_committed_defaults_to_played_and_fractions_are_cut() -> None:
    ledgers = book("a")
    ledger = ack(ledgers, "a", 700.9)
    assert (ledger.played_ms, ledger.committed_ms) == (700, 700)
    ack(ledgers, "a", 900, 800)
    assert (ledger.played_ms, ledger.committed_ms) == (900, 800)
    ack(ledgers, "a", -50)
    assert ledger.played_ms == 900


def test_a_response_is_played_until_all_of_it_is_committed() -> None:
    ledgers = book("a")
    assert ledgers.playing(0.0)
    ack(ledgers, "a", 1000)
    assert not ledgers.playing(0.0)


def test_old_ledgers_are_forgotten() -> None:
    made = PlaybackBook(ACK, kept=2)
    for name in "abc":
        made.open(name, F0, spoken=True)
    assert made.get("a") is None
    assert made.statistics()["ledgers"] == 2


# --- wall clock --------------------------------------------------------------------------------------


def sent(ledgers: PlaybackBook, ledger: Playback, now: float, ms: int) -> None:
    ledgers.advance(now)
    ledger.generate(ms)
    ledger.send(ms)


def test_committed_advances_at_playout_speed_from_sent() -> None:
    ledgers = PlaybackBook(WALL)
    ledger = ledgers.open("a", F0, spoken=True)
    sent(ledgers, ledger, 10.0, 1000)
    assert ledgers.advance(10.4) == (ledger,)
    assert ledger.committed_ms == 400
    ledgers.advance(20.0)
    assert ledger.committed_ms == 1000, "nothing plays that was not sent"


def test_a_player_that_ran_dry_goes_on_from_the_next_chunk() -> None:
    ledgers = PlaybackBook(WALL)
    ledger = ledgers.open("a", F0, spoken=True)
    sent(ledgers, ledger, 0.0, 200)
    sent(ledgers, ledger, 5.0, 1000)
    ledgers.advance(5.3)
    assert ledger.committed_ms == 500


def test_responses_play_one_after_the_other() -> None:
    ledgers = PlaybackBook(WALL)
    first, second = ledgers.open("a", F0, spoken=True), ledgers.open("b", F0, spoken=True)
    sent(ledgers, first, 0.0, 300)
    first.end(0.0, "", "completed")
    sent(ledgers, second, 0.0, 1000)
    ledgers.advance(0.5)
    assert (first.committed_ms, second.committed_ms) == (300, 200)


def test_a_stopped_response_plays_no_further() -> None:
    ledgers = PlaybackBook(WALL)
    ledger = ledgers.open("a", F0, spoken=True)
    sent(ledgers, ledger, 0.0, 1000)
    ledgers.advance(0.4)
    ledger.stopped = True
    ledgers.advance(0.9)
    assert ledger.committed_ms == 400


def test_the_wall_clock_stands_still_once_acks_count() -> None:
    ledgers = PlaybackBook(WALL)
    ledger = ledgers.open("a", F0, spoken=True)
    sent(ledgers, ledger, 0.0, 1000)
    ledgers.advance(0.2)
    ledgers.policy = ACK
    assert ledgers.advance(0.9) == ()
    assert ledger.committed_ms == 200


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 300)), min_size=1, max_size=20))
def test_many_small_steps_equal_one_large_one(steps: list[tuple[int, int]]) -> None:
    """Asking often must not change what was played (no rounding drift)."""
    often, seldom = PlaybackBook(WALL), PlaybackBook(WALL)
    ledgers = [each.open("a", F0, spoken=True) for each in (often, seldom)]
    for each, ledger in zip((often, seldom), ledgers, strict=True):
        sent(each, ledger, 0.0, 10_000)
    now = 0.0
    for count, pause_tenths in steps:
        for _ in range(count % 7):
            now += pause_tenths / 10_000
            often.advance(now)
    seldom.advance(now)
    assert abs(ledgers[0].committed_ms - ledgers[1].committed_ms) <= 1
