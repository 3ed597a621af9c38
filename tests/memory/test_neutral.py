"""Neutralising is injective, and no control token survives it, whatever it is joined with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.neutral import control_tokens, neutralise, restore
from tests.memory.driver import JOYVL

TOKENS = control_tokens(JOYVL)
MARKS = ["<", "|", ">", "im_", "end", "/", "silence", " ", "\n", "\r", "[", "\\", "\ud83d", "a", "数"]
PIECES = [*sorted(TOKENS), *MARKS]
HOSTILE = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=12).map("".join)


@given(HOSTILE)
def test_restore_gives_the_text_back(text: str) -> None:
    """A function with an inverse is injective."""
    assert restore(neutralise(text, TOKENS), TOKENS) == text


@given(HOSTILE, HOSTILE)
def test_no_token_survives_nor_is_formed_by_joining(one: str, other: str) -> None:
    joined = neutralise(one, TOKENS) + neutralise(other, TOKENS)
    lowered = joined.casefold()
    assert not [token for token in TOKENS if token.casefold() in lowered]


@given(HOSTILE)
def test_no_further_line_starts_at_its_margin(text: str) -> None:
    """A text cannot pose as a section header or as a line of the Q&A history."""
    lines = neutralise(text, TOKENS).splitlines()
    assert all(not line or line.startswith(" ") for line in lines[1:])
    assert not neutralise(text, TOKENS).startswith("[")


@given(HOSTILE)
def test_every_request_body_can_carry_it(text: str) -> None:
    neutralise(text, TOKENS).encode("utf-8")


def test_plain_text_stays_as_it_is() -> None:
    assert neutralise("Is the door open? 门开了吗", TOKENS) == "Is the door open? 门开了吗"


def test_tag_spellings_in_any_case_are_broken() -> None:
    for text in ("</Silence>", "<RESPONSE>", "</delegate>", "<|IM_END|>", "<7.0 seconds>"):
        assert neutralise(text, TOKENS).startswith("< ")


@pytest.mark.parametrize("token", ["USER:", " x", "?"])
def test_tokens_that_cannot_be_broken_are_refused(token: str) -> None:
    with pytest.raises(ValueError, match="control token"):
        neutralise("text", frozenset({token}))
