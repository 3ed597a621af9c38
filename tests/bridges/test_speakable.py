"""What is for the eye alone is not read out; what can be said stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.speakable import Speakable


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("A **red** car, *really* red.", "A red car, really red."),
        ("# Heading\n- one\n- two", "Heading one two"),
        ("See [the map](https://example.com/a?b=c) now.", "See the map now."),
        ("Go to https://www.example.com/path/x?y=1.", "Go to example.com."),
        ("Look 👍🏽 here 👩‍👩‍👧!", "Look here !"),
        ("<b>Bold</b> and a &lt; b", "Bold and a < b"),
        ("Run `ls` and wait.", "Run ls and wait."),
        ("snake_case_name stays", "snake_case_name stays"),
        ("3 * 4 = 12", "3 * 4 = 12"),
        ("20 % of 5 € at 3°", "20 % of 5 € at 3°"),
        ("bell\x07 and \u202eturned", "bell and turned"),
        ("half \ud83d a pair", "half a pair"),
        ("1️⃣ first", "1 first"),
        ("你好，**世界**。", "你好，世界。"),
        ("👍", ""),
        ("...", ""),
        ("---\n", ""),
        ("don't stop", "don't stop"),
    ],
)
def test_one_piece(shown: str, said: str) -> None:
    assert Speakable().of(shown) == said


def test_code_is_shown_and_not_said_however_it_is_cut() -> None:
    speakable = Speakable()
    pieces = ["Like this:\n", "```python\n", "x = 1, ", "y = 2\n", "```\nDone. "]
    assert [speakable.of(piece) for piece in pieces] == ["Like this:", "", "", "", "Done."]


def test_a_link_cut_in_its_words() -> None:
    speakable = Speakable()
    assert [speakable.of(p) for p in ("See [the long, ", "old map](http://a.b/c) now.")] == [
        "See the long,",
        "old map now.",
    ]


@given(st.text(max_size=80))
def test_it_is_one_line_that_every_synthesiser_can_encode(text: str) -> None:
    said = Speakable().of(text)
    said.encode("utf-8")
    assert said == said.strip() and "\n" not in said and all(ord(c) >= 32 for c in said)
