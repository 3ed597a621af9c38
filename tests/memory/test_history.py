"""Summaries and long-term blocks: order, roll-ups that keep their inputs, and the rare cut."""

from __future__ import annotations

from memory.chunks import Span
from memory.history import ROLLUP_ATTEMPTS, History, Passage
from memory.lines import Lines
from memory.tokens import estimate
from tests.memory.driver import JOYVL

LINES = Lines(JOYVL, "en")
NOTHING = []


def passage(chunk: int, text: str = "text") -> Passage:
    return Passage(chunk, chunk * 1000, chunk * 1000 + 1000, chunk, text)


def history(*chunks: int) -> History:
    built = History()
    for chunk in chunks:
        built.summary(passage(chunk))
    return built


def trim(built: History, **changes: int) -> None:
    bounds = {"blocks_max": 4, "blocks_keep": 3, "block_tokens": 1000, "all_tokens": 2000, "summaries_max": 8}
    built.trim(**(bounds | changes), count=estimate)


def wants(built: History, pending: bool = False, lost: list[Span] = NOTHING) -> list:
    return built.wants(5, lambda end_ms: pending, lost, LINES)


def test_a_summary_takes_its_place_in_time() -> None:
    assert [p.chunk for p in history(2, 0, 1).summaries] == [0, 1, 2]


def test_five_summaries_roll_up_and_only_then_go() -> None:
    built = history(0, 1, 2, 3)
    assert not wants(built)
    built.summary(passage(4))
    [want] = wants(built)
    assert want.chunks == (0, 1, 2, 3, 4) and (want.start_ms, want.end_ms) == (0, 5000)
    assert len(built.summaries) == 5
    block = built.rollup(want.chunks, "block")
    assert block == Passage(4, 0, 5000, 0, "block")
    assert not built.summaries and built.blocks == [block]


def test_a_roll_up_waits_for_a_summary_that_may_still_come() -> None:
    assert not wants(history(0, 1, 3, 4, 5), pending=True)


def test_a_roll_up_is_told_of_gaps_that_stay() -> None:
    [want] = wants(history(0, 1, 3, 4, 5), lost=[Span(2000, 3000), Span(9000, 9500)])
    assert len(want.texts) == 6
    assert "2.0-3.0" in want.texts[2]


def test_a_failed_roll_up_keeps_its_inputs_and_is_tried_again_with_the_next_summary() -> None:
    built = history(0, 1, 2, 3, 4)
    for attempt in range(1, ROLLUP_ATTEMPTS + 1):
        [want] = wants(built)
        assert want.attempt == attempt
        built.rollup_failed(want.chunks, want.attempt)
        built.rollup_failed(want.chunks, want.attempt)  # a stale report counts once
    assert len(built.summaries) == 5 and not wants(built)
    built.summary(passage(5))
    [want] = wants(built)
    assert (want.chunks, want.attempt) == ((0, 1, 2, 3, 4), ROLLUP_ATTEMPTS + 1)


def test_a_roll_up_of_others_than_the_oldest_changes_nothing() -> None:
    built = history(0, 1, 2)
    assert built.rollup((1, 2), "x") is None
    assert built.rollup((), "x") is None
    assert len(built.summaries) == 3


def blocks(built: History, count: int) -> None:
    for number in range(count):
        built.summary(passage(number))
        built.rollup((number,), "block")
        trim(built)


def test_long_term_grows_to_its_most_then_is_cut_to_the_newest() -> None:
    built = History()
    sizes = []
    for number in range(12):
        built.summary(passage(number))
        built.rollup((number,), "block")
        trim(built)
        sizes.append(len(built.blocks))
    assert sizes == [1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4]
    assert built.blocks[-1].chunk == 11
    assert built.forgotten_before_ms == built.blocks[0].start_ms


def test_blocks_beyond_their_tokens_go_too() -> None:
    built = History()
    for number in range(4):
        built.summary(passage(number))
        built.rollup((number,), "b" * 350)
    trim(built, block_tokens=310)
    assert len(built.blocks) == 2


def test_where_no_roll_up_ever_succeeds_the_oldest_summaries_go_last() -> None:
    built = History()
    blocks(built, 2)
    for number in range(2, 40):
        built.summary(passage(number))
        trim(built)
        assert len(built.summaries) <= 8
    assert not built.blocks
    assert built.summaries[-1].chunk == 39
    assert built.forgotten_before_ms == built.summaries[0].start_ms


def test_a_head_tells_what_precedes_its_window() -> None:
    built = history(3, 4, 5)
    built.blocks.append(passage(0))
    told, summaries = built.before(5)
    assert [p.chunk for p in told] == [0] and [p.chunk for p in summaries] == [3, 4]
