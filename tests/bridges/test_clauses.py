"""Words that come bit by bit are cut where a speaker may pause; together the pieces are the text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridges.clauses import ClauseRules, Clauses, joins, safe_cut

RULES = ClauseRules()
TRICKY = ["e\u0301", "👩‍👩‍👧", "🇩🇪🇫🇷", "👍🏽", "\ud83d", "\ude00", "क्षि", "1\ufe0f\u20e3", "\r\n", "ไทย"]
PLAIN = [
    "a",
    "Dr",
    ". ",
    "3.5",
    "! ",
    ", ",
    "。",
    "，",
    "」",
    "\n",
    " ",
    "word ",
    "e.g. ",
    "```",
    "漢字",
    "?",
]
TEXTS = st.lists(st.sampled_from(TRICKY + PLAIN) | st.text(max_size=6), max_size=60)


def pieces_of(words: list[str], rules: ClauseRules = RULES) -> list[str]:
    clauses = Clauses(rules)
    cut = [piece for at, word in enumerate(words) for piece in clauses.push(word, at * 0.1)]
    return cut + clauses.finish()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("A dog barks. A cat sleeps. ", ["A dog barks. ", "A cat sleeps. "]),
        ("Dr. Smith paid 3.50 dollars, e.g. for tea. Then he left.", None),
        ("“Stop!” she said. Then: silence.", ["“Stop!” ", "she said. ", "Then: silence."]),
        ("红车到了桥边。狗在叫！“好的。”他说。", ["红车到了桥边。", "狗在叫！", "“好的。”", "他说。"]),
        ("J. R. Hartley wrote. It sold.", ["J. R. Hartley wrote. ", "It sold."]),
        ("1. Wash. 2. Dry.\n3. Fold.", ["1. Wash. ", "2. Dry.\n", "3. Fold."]),
        ("First line\nsecond line", ["First line\n", "second line"]),
        ("A red car, and behind it a bus. ", ["A red car, ", "and behind it a bus. "]),
        ("Well... maybe. ", ["Well... ", "maybe. "]),
    ],
)
def test_where_it_is_cut(text: str, pieces: list[str] | None) -> None:
    got = pieces_of(list(text))
    if pieces is None:
        pieces = ["Dr. Smith paid 3.50 dollars, ", "e.g. for tea. ", "Then he left."]
    assert got == pieces


def test_a_later_piece_goes_on_past_a_comma_until_it_is_long() -> None:
    first, second, rest = pieces_of(["A start. ", "one, two, three, " * 6])
    assert first == "A start. " and 60 <= len(second) < 70 and second.endswith(", ")
    assert second + rest == "one, two, three, " * 6


def test_the_first_words_do_not_wait_for_a_stop_that_does_not_come() -> None:
    clauses = Clauses()
    assert clauses.push("The red car is now on ", 1.0) == []
    assert clauses.due_at == 1.0 + RULES.patience_s
    assert clauses.late(1.2) == []
    assert clauses.late(1.6) == ["The red car is now on "]
    assert clauses.push("its way to the bridge ", 9.0) == [] and clauses.due_at is None
    assert clauses.finish() == ["its way to the bridge "]


def test_text_without_spaces_does_not_wait_either() -> None:
    clauses = Clauses()
    text = "红色的汽车现在正在开往大桥的路上呢"
    clauses.push(text, 0.0)
    assert clauses.late(1.0) == [text[:-1]]


@given(TEXTS, st.integers(8, 60))
@example(["ééé \U0001f3fb", "é" * 9], 8)
def test_the_pieces_are_the_text_bounded_and_break_no_character(words: list[str], longest: int) -> None:
    rules = ClauseRules(first_min=4, clause_min=12, longest=longest)
    pieces = pieces_of(words, rules)
    assert "".join(pieces) == "".join(words)
    assert all(pieces)
    for before, after in itertools.pairwise(pieces):
        assert not joins(before[-1], after[0]) or len(before) >= longest


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_safe_cut_is_inside_the_text(text: str, end: int) -> None:
    at = safe_cut(text, end)
    assert 0 <= at <= len(text)
    if 0 < at < len(text):
        assert not joins(text[at - 1], text[at])
