"""The parser sees the same events however the bytes are cut, and never half a character."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.sse import EventTooLarge, SseParser, WholeCharacters

# Any text without line ends; payload lines of one event.
_line = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"), max_size=12)
_event = st.lists(_line, min_size=1, max_size=3)
_end = st.sampled_from(["\n", "\r\n", "\r"])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


@given(
    st.lists(st.tuples(_event, _end, st.booleans()), max_size=5),
    st.lists(st.integers(0, 10_000), max_size=40),
    st.booleans(),
)
def test_any_cut_gives_the_same_events(
    events: list[tuple[list[str], str, bool]], places: list[int], bom: bool
) -> None:
    raw = "\ufeff" if bom else ""
    for lines, end, comment in events:
        raw += f": hello{end}" if comment else ""
        raw += f"event: x{end}id: 7{end}"
        raw += "".join(f"data: {line}{end}" for line in lines) + end
    parser = SseParser()
    out = [payload for piece in cut(raw.encode(), places) for payload in parser.feed(piece)]
    assert [payload.decode() for payload in out] == ["\n".join(lines) for lines, _, _ in events]


def test_one_byte_at_a_time() -> None:
    parser = SseParser()
    raw = 'data: {"a":"\U0001f600"}\r\n\r\ndata:x\r\rdata: [DONE]\n\n'.encode()
    out = [payload for at in range(len(raw)) for payload in parser.feed(raw[at : at + 1])]
    assert out == ['{"a":"\U0001f600"}'.encode(), b"x", b"[DONE]"]


def test_an_unfinished_event_is_not_an_event() -> None:
    assert SseParser().feed(b"data: half\n") == []


def test_a_field_without_colon_is_a_field() -> None:
    assert SseParser().feed(b"data\n\ndata\ndata\n\nnonsense\n\n") == [b"", b"\n"]


def test_an_endless_event_is_an_error() -> None:
    parser = SseParser(max_event_bytes=100)
    with pytest.raises(EventTooLarge):
        for _ in range(100):
            parser.feed(b"data: 12345")


def test_many_events_do_not_add_up() -> None:
    parser = SseParser(max_event_bytes=100)
    assert sum(len(parser.feed(b"data: 12345\n\n")) for _ in range(1000)) == 1000


@given(st.text(), st.lists(st.integers(0, 10_000), max_size=20))
def test_text_cut_anywhere_comes_out_whole(text: str, places: list[int]) -> None:
    """Even between the halves of a surrogate pair, as JSON escapes may cut it."""
    units = text.encode("utf-16-le")
    bounds = [0, *sorted(2 * (place % (len(units) // 2 + 1)) for place in places), len(units)]
    whole = WholeCharacters()
    out = [whole.feed(units[a:b].decode("utf-16-le", "surrogatepass")) for a, b in pairwise(bounds)]
    for piece in out:
        piece.encode()
    assert "".join(out) == text.replace("\ufffd", "")


def test_halves_that_never_meet_are_left_out() -> None:
    whole = WholeCharacters()
    assert whole.feed("a\ud83d") + whole.feed("b\ude00c\ufffd") == "abc"
