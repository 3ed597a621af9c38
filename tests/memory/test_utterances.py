"""The newest talk, word for word, and of the model's words only those that were heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.tokens import estimate
from memory.utterances import Utterances, clock, flat, whole


def said(utterances: Utterances) -> list[tuple[str, str, bool]]:
    return [(line.who, line.text, line.cut) for line in utterances.lines if line.shown]


def test_what_was_heard_replaces_what_was_told_of_it_before() -> None:
    talk = Utterances(200)
    assert talk.user("i1", "How are you?", 1000)
    talk.heard("r1", "", False, 2000)
    assert said(talk) == [("user", "How are you?", False)]
    assert talk.heard("r1", "I am", False, 3000)
    assert talk.heard("r1", "I am fine.", True, 4000)
    assert not talk.heard("r1", "I am fine.", True, 4500)
    assert said(talk) == [("user", "How are you?", False), ("model", "I am fine.", False)]
    assert talk.heard("r1", "I am", False, 5000)  # truncated
    assert said(talk)[-1] == ("model", "I am", True)
    assert talk.heard("r1", "", False, 5000)
    assert said(talk) == [("user", "How are you?", False)]


def test_a_response_keeps_its_place_though_it_is_heard_after_the_user_spoke_again() -> None:
    talk = Utterances(200)
    talk.heard("r1", "", False, 0)
    talk.user("i1", "Wait.", 1000)
    talk.heard("r1", "So the", False, 2000)
    assert [who for who, _, _ in said(talk)] == ["model", "user"]


def test_a_later_transcript_of_an_item_replaces_the_former() -> None:
    talk = Utterances(200)
    talk.user("i1", "How", 0)
    assert talk.user("i1", "How are you?", 10)
    assert not talk.user("i1", "How are you?", 20)
    assert said(talk) == [("user", "How are you?", False)]
    assert talk.user("i1", "", 30) and said(talk) == []


def test_speech_without_end_goes_on_in_further_lines() -> None:
    talk = Utterances(20)
    text = ""
    for number in range(40):
        text += f"word{number} "
        talk.heard("r", text, True, number)
    assert all(estimate(line.text) <= 20 for line in talk.lines)
    assert " ".join(text for _, text, _ in said(talk)) == text.strip()


def test_words_heard_after_their_beginning_was_summarised_are_not_told_twice() -> None:
    talk = Utterances(200)
    talk.heard("r", "One two three", True, 0)
    talk.user("i", "x " * 100, 1)
    assert [line.text for line in talk.take(80)] == ["One two three"]
    talk.heard("r", "One two three four", True, 2)
    assert said(talk)[-1] == ("model", "four", False)
    assert talk.heard("r", "One two", False, 3) and said(talk)[-1][0] == "user"


def test_frames_are_counted_between_words() -> None:
    talk = Utterances(200)
    talk.frames(1, 0)
    talk.frames(2, 1000)
    talk.user("i", "What is that?", 1500)
    talk.frames(1, 2000)
    assert [(line.who, line.count) for line in talk.lines] == [("frames", 3), ("user", 0), ("frames", 1)]


def test_a_deleted_item_is_forgotten() -> None:
    talk = Utterances(200)
    talk.user("i", "My secret.", 0)
    assert talk.forget("i") and not talk.forget("i") and not talk.lines


def test_times_and_texts_are_plain() -> None:
    assert (clock(0), clock(61_999), clock(3_661_000), clock(-5)) == ("0:00", "1:01", "1:01:01", "0:00")
    assert flat("a\n\x00b\u2028c\t d\x85") == "a b c d"


@given(st.text(max_size=300), st.integers(8, 40))
def test_any_text_is_kept_whole_over_lines(text, tokens):
    talk = Utterances(tokens)
    talk.heard("r", text, True, 0)
    assert "".join("".join(line.text.split()) for line in talk.lines) == "".join(flat(text).split())
    assert all(estimate(line.text) <= tokens for line in talk.lines)


@pytest.mark.parametrize(
    ("text", "at", "cut"),
    [("ab", 1, 1), ("ae\u0301x", 2, 1), ("a👩\u200d🚀b", 3, 1), ("a👩🏽b", 2, 1), ("e\u0301", 1, 1)],
)
def test_no_character_is_torn_where_there_is_another_place_to_cut(text: str, at: int, cut: int) -> None:
    assert whole(text, at) == cut
