"""Heads: sections in order, headers with their first entry, durable lines, pieces for prewarming."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.chunks import Span
from memory.head import head_tokens, memory_text, pieces, sections, system_text
from memory.history import Passage
from memory.lines import Lines
from memory.plan import Head, Section
from memory.qa import QaArchive, QaLine
from memory.queries import Query
from memory.tokens import TokenMeter
from tests.memory.driver import JOYVL

LINES = Lines(JOYVL, "en")
METER = TokenMeter(1 / 1024)


def passage(number: int) -> Passage:
    return Passage(number, number * 10_000, number * 10_000 + 10_000, number, f"text {number}")


def build(blocks=(), summaries=(), gaps=(), qa=(), queries=()) -> tuple[Section, ...]:
    return sections(LINES, blocks, summaries, gaps, QaArchive(None, tuple(qa)), queries)


def names(built: tuple[Section, ...]) -> list[str]:
    return [section.name for section in built]


def test_an_empty_memory_has_no_sections() -> None:
    assert build() == () and memory_text(Head(0, "s", ())) == ""


def test_sections_in_order_with_the_standing_query_last() -> None:
    built = build(
        [passage(0)], [passage(1)], qa=[QaLine("response", 0, 0, "yes")], queries=[Query("q", 1, "what?", 0)]
    )
    assert names(built) == ["history", "long_term", "summaries", "qa", "query"]
    assert built[-1].text.endswith("\nwhat?")


def test_a_header_appears_with_its_first_entry() -> None:
    for built in (build([passage(0)]), build((), [passage(0)]), build(gaps=[Span(0, 9000)])):
        assert names(built)[0] == "history"
    assert "history" not in names(build(queries=[Query("q", 1, "what?", 0)]))


def test_gaps_stand_at_their_time() -> None:
    built = {s.name: s.text for s in build((), [passage(0), passage(2)], [Span(10_000, 20_000)])}
    entries = built["summaries"].split("\n\n")
    assert "text 0" in entries[0] and "10.0-20.0" in entries[1] and "text 2" in entries[2]


def test_a_gap_before_the_first_summary_stands_with_the_blocks() -> None:
    built = {s.name: s.text for s in build([passage(0)], [passage(2)], [Span(10_000, 20_000)])}
    assert "10.0-20.0" in built["long_term"] and "10.0-20.0" not in built["summaries"]
    late = {s.name: s.text for s in build([passage(0)], (), [Span(10_000, 20_000)])}
    assert "10.0-20.0" in late["summaries"]


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))
def test_new_text_follows_old_text(blocks: int, summaries: int, more: int, lines: int) -> None:
    """The memory text of the next head begins with that of the last, up to the first section that grew."""
    old_blocks = [passage(n) for n in range(blocks)]
    old = [passage(blocks + n) for n in range(summaries)]
    new = [passage(blocks + n) for n in range(summaries + more)]
    qa = [QaLine("response", n, n, f"answer {n}") for n in range(lines)]
    before = {s.name: s.text for s in build(old_blocks, old, qa=qa)}
    after = {s.name: s.text for s in build(old_blocks, new, qa=[*qa, QaLine("response", 9, 9, "new")])}
    for name, text in before.items():
        assert after[name].startswith(text)


def test_the_system_prompt_takes_instructions() -> None:
    assert system_text("persona", "") == "persona"
    assert system_text("persona", "be brief") == "persona\n\nbe brief"


@given(st.integers(0, 6000), st.integers(0, 6000), st.integers(50, 800))
def test_pieces_grow_by_no_more_than_a_step(known: int, fresh: int, step: int) -> None:
    old = Head(1, "system", (Section("summaries", "a" * known),))
    new = Head(2, "system", (Section("summaries", "a" * known + "b" * fresh), Section("query", "c" * 200)))
    steps = [*pieces(new, memory_text(old) if known else "", METER, step), new]
    shared = len(memory_text(old).rstrip("\n")) if known else 0
    for piece in steps:
        text = memory_text(piece)
        assert METER.text(text[shared:].rstrip("\n")) <= step + 2
        assert memory_text(new).startswith(text.rstrip("\n"))
        shared = len(text.rstrip("\n"))


def test_a_small_change_needs_no_pieces() -> None:
    new = Head(2, "system", (Section("summaries", "text"),))
    assert pieces(new, "", METER, 2048) == []


def test_tokens_count_all_of_it() -> None:
    small = head_tokens(Head(0, "s" * 70, ()), METER)
    assert head_tokens(Head(0, "s" * 70, (Section("qa", "q" * 350),)), METER) >= small + 100
