"""Q&A history: archived once, in order, bounded by count and tokens, holding heard text only."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memory.lines import Lines
from memory.qa import RECENT_MAX, QaArchive, QaHistory, QaLine
from tests.memory.driver import JOYVL

LINES = Lines(JOYVL, "en")


def line(seq: int, text: str = "yes", **fields: object) -> QaLine:
    return replace(QaLine("response", seq, seq * 1000, text, response_id=f"r{seq}"), **fields)


def test_a_line_is_archived_when_its_turn_has_left_the_window() -> None:
    qa = QaHistory()
    for seq in range(4):
        qa.add(line(seq))
    archive = qa.before(2, most=10, tokens=1000)
    assert [entry.seq for entry in archive.lines] == [0, 1]
    assert not qa.archive.lines  # nothing counts before its head is live
    qa.freeze(archive)
    qa.leave(2)
    assert [entry.seq for entry in qa.archive.lines] == [0, 1] and [entry.seq for entry in qa.recent] == [
        2,
        3,
    ]


@given(st.lists(st.integers(0, 300), max_size=120), st.integers(1, 20), st.integers(30, 400))
def test_bounds_hold_and_what_goes_is_counted(sizes: list[int], most: int, tokens: int) -> None:
    archive = QaArchive()
    for seq, size in enumerate(sizes):
        before = archive
        archive = replace(archive, lines=(*archive.lines, line(seq, "x" * size))).bounded(most, tokens)
        assert len(archive.lines) <= most
        assert sum(entry.tokens for entry in archive.lines) <= tokens
        gone = archive.digest.count if archive.digest else 0
        assert gone + len(archive.lines) == seq + 1
        kept = [entry for entry in before.lines if entry in archive.lines]
        assert list(archive.lines[: len(kept)]) == kept  # durable lines keep their order


def test_a_cut_goes_well_below_the_bound_so_that_it_is_rare() -> None:
    archive, cuts = QaArchive(), 0
    for seq in range(400):
        grown = replace(archive, lines=(*archive.lines, line(seq)))
        archive = grown.bounded(40, 100_000)
        cuts += archive is not grown
    assert cuts < 400 / 8


def test_the_digest_is_one_line_with_count_and_times() -> None:
    archive = replace(QaArchive(), lines=tuple(line(seq) for seq in range(41))).bounded(40, 100_000)
    [first, *_] = archive.render(LINES)
    assert "11" in first and "0.0" in first and "10.0" in first


def test_only_what_was_heard_stays() -> None:
    qa = QaHistory()
    qa.add(line(0, "the whole sentence"))
    qa.freeze(qa.before(1, 10, 1000))
    qa.leave(1)
    qa.add(line(1, "another"))
    assert qa.heard("r0", "the whole") and qa.heard("r1", " ")
    assert [entry.text for entry in qa.archive.lines] == ["the whole"] and not qa.recent
    assert not qa.heard("r9", "x")


def test_a_deleted_question_goes_with_its_answers() -> None:
    qa = QaHistory()
    qa.add(QaLine("query", 0, 0, "what?", 1, query_id="q"))
    qa.add(line(0, query_id="q"))
    qa.add(line(1))
    qa.remove_query("q")
    assert [entry.seq for entry in qa.recent] == [1]


def test_questions_that_are_never_shown_are_bounded_too() -> None:
    qa = QaHistory()
    for number in range(RECENT_MAX + 50):
        qa.add(QaLine("query", 0, number, "again?", number))
    assert len(qa.recent) == RECENT_MAX
    assert qa.archive.digest and qa.archive.digest.count == 50


def test_each_kind_has_its_line() -> None:
    assert QaLine("query", 0, 5000, "what?", 3).render(LINES) == "#3 [Query@5.0s] what?"
    assert line(6).render(LINES) == "[Response@6.0s] yes"
    assert QaLine("unasked", 0, 5000, "look", 4).render(LINES) == "#4 [Remark@5.0s] look"
    assert "why" in QaLine("delivery", 0, 0, "so", question="why").render(LINES)
