"""Replies read by rule: the traps of lax scorers do not catch these."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.metrics.answers import holds, letter, normal, number, right
from evals.readers.clip import Judging, Kind, Slot

OPTIONS = ("A red car", "A blue car", "Two dogs", "Nothing")


def slot(judging: Judging, *accepted: str, choices: tuple[str, ...] = ()) -> Slot:
    return Slot(
        id="s",
        query="q",
        kind=Kind.ANSWER,
        start_s=0,
        end_s=1,
        judging=judging,
        accepted=accepted,
        choices=choices,
    )


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("B", "B"),
        ("b", "B"),
        ("b.", "B"),
        ("(C)", "C"),
        ("B. A blue car", "B"),
        ("**D**", "D"),
        ("The answer is C.", "C"),
        ("answer: (b)", "B"),
        ("I would say B", "B"),
        ("Option D, because nothing moves", "D"),
        ("A red car passes", "A"),
        ("It is two dogs.", "C"),
        ("A blue car, A red car", None),
        ("A or B", None),
        ("either A or C", None),
        ("the answer is A or the answer is B", None),
        ("ALL of them", None),
        ("I am not sure", None),
        ("", None),
        ("F", None),
    ],
)
def test_one_letter_is_read(reply: str, named: str | None) -> None:
    assert letter(reply, OPTIONS) == named


def test_an_option_within_another_is_told_apart() -> None:
    assert letter("it was the red car", ("red", "red car")) == "B"
    assert letter("it was red", ("red", "red car")) == "A"


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("3", 3),
        ("There are three.", 3),
        ("Three, that is 3", 3),
        ("2 of 10", None),
        ("twenty-one squares", 21),
        ("twenty one squares", 21),
        ("twenty squares", 20),
        ("1,200 people", 1200),
        ("2.5 metres", 2.5),
        ("-4 degrees", -4),
        ("−4 degrees", -4),
        ("twice", 2),
        ("none", 0),
        ("at 00:10", None),
        ("mp3", None),
        ("50%", None),
        ("someone", None),
        ("13", 13),
        ("3.", 3),
        ("(3)", 3),
        ("", None),
    ],
)
def test_one_number_is_read(reply: str, named: float | None) -> None:
    assert number(reply) == named


@given(st.integers(0, 10**6))
def test_any_number_is_read_in_figures(value: int) -> None:
    assert number(f"There are {value} of them.") == number(f"{value:,}") == value


@pytest.mark.parametrize(
    ("reply", "wanted", "there"),
    [
        ("13", "3", False),
        ("it says 3", "3", True),
        ("A red, square sign", "red square", True),
        ("reddish square", "red", False),
        ("THE STOP SIGN", "stop", True),
        ("anything", "", False),
        ("3.5", "3", False),
    ],
)
def test_whole_words_are_held(reply: str, wanted: str, there: bool) -> None:
    assert holds(reply, wanted) is there


@given(st.text(max_size=40))
def test_what_is_normal_stays_so(text: str) -> None:
    assert normal(normal(text)) == normal(text)


@pytest.mark.parametrize(
    ("judged", "reply", "verdict"),
    [
        (slot(Judging.ANY), "whatever", True),
        (slot(Judging.EXACT, "the red square"), "Red square.", True),
        (slot(Judging.EXACT, "red square"), "a red square appears", False),
        (slot(Judging.CONTAINS, "red", "crimson"), "it was crimson", True),
        (slot(Judging.CHOICE, "B", choices=OPTIONS), "BALL", False),
        (slot(Judging.CHOICE, "B", choices=OPTIONS), "B", True),
        (slot(Judging.NUMBER, "210"), "2 of 10", False),
        (slot(Judging.NUMBER, "3"), "three", True),
        (slot(Judging.YES_NO, "No"), "Nothing yet", False),
        (slot(Judging.YES_NO, "No"), "No, not yet.", True),
        (slot(Judging.YES_NO, "Yes"), "y", True),
        (slot(Judging.YES_NO, "Yes"), "yes or no", False),
        (slot(Judging.JUDGE, "red"), "red", None),
    ],
)
def test_a_reply_is_held_against_its_slot(judged: Slot, reply: str, verdict: bool | None) -> None:
    assert right(judged, reply) is verdict
