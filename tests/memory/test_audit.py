"""The prefix audit: promises across failed ticks, switches and replaced answers; reasons for shortfalls."""

from __future__ import annotations

from dataclasses import replace

from memory.audit import PrefixAudit, common
from memory.facts import EngineLost
from memory.plan import Head, Plan, Section, Text, Turn, Usage
from tests.memory.driver import Driver

HEAD = Head(0, "system", (Section("query", "what?"),))


def plan(*said: str, head: Head = HEAD, window: int = 0) -> Plan:
    turns = tuple(Turn(n, (Text(f"<{n}.0 seconds>"),), text) for n, text in enumerate(said))
    return Plan(window, head, turns, Turn(len(said), (Text(f"<{len(said)}.0 seconds>"),), None))


def test_the_formula() -> None:
    audit = PrefixAudit(16)
    assert audit.tick(plan(), Usage(100, 5, 0), said="a", said_is_generated=True).expected == 0
    result = audit.tick(plan("a"), Usage(140, 5, 96), said="b", said_is_generated=True)
    assert (result.expected, result.cached, result.shortfall) == ((100 + 5 - 1) // 16 * 16, 96, None)
    # A prompt never comes from the cache as a whole: its last token is always computed.
    assert audit.tick(plan("a", "b"), Usage(145, 5, 144), said="c", said_is_generated=True).expected == 144
    assert audit.ratio == 1.0


def test_where_the_answer_was_replaced_only_the_prompt_is_promised() -> None:
    audit = PrefixAudit(1)
    audit.tick(plan(), Usage(100, 30, 0), said="</silence>", said_is_generated=False)
    result = audit.tick(plan("</silence>"), Usage(150, 5, 100), said="x", said_is_generated=True)
    assert result.expected == 100 and result.shortfall is None


def test_a_shortfall_with_the_same_bytes_is_an_eviction() -> None:
    audit = PrefixAudit(1)
    audit.tick(plan(), Usage(100, 5, 0), said="a", said_is_generated=True)
    result = audit.tick(plan("a"), Usage(140, 5, 30), said="b", said_is_generated=True)
    assert result.shortfall == "evicted"
    assert audit.ratio == 30 / 104


def test_a_shortfall_names_section_turn_and_byte_of_the_first_difference() -> None:
    audit = PrefixAudit(1)
    audit.tick(plan("a", "b"), Usage(100, 5, 0), said="c", said_is_generated=True)
    result = audit.tick(plan("a", "B", "c"), Usage(140, 5, 40), said="d", said_is_generated=True)
    assert result.details["section"] == "said" and result.details["turn"] == 1
    assert result.shortfall == f"said/1/{result.details['byte']}"
    changed = replace(HEAD, sections=(Section("query", "who?"),))
    result = audit.tick(plan("a", head=changed), Usage(140, 5, 4), said="d", said_is_generated=True)
    assert result.details["section"] == "query" and result.details["turn"] == -1


def test_a_declared_switch_promises_what_was_prewarmed() -> None:
    audit = PrefixAudit(1)
    audit.tick(plan("a"), Usage(200, 5, 0), said="b", said_is_generated=True)
    warm = replace(plan("b", head=replace(HEAD, version=1), window=1), open_turn=None, generate=False)
    audit.prewarmed(warm, 150)
    assert audit.tick(replace(plan("b"), window=1), Usage(180, 5, 150), said="c", said_is_generated=True) == (
        type(audit.tick(plan("x"), Usage(9, 1, 9), said="", said_is_generated=True))(150, 150)
    )


def test_an_undeclared_prewarm_or_lost_engine_promises_nothing() -> None:
    audit = PrefixAudit(1)
    audit.tick(plan(), Usage(100, 5, 0), said="a", said_is_generated=True)
    audit.engine_lost()
    assert audit.tick(plan("a"), Usage(140, 5, 0), said="b", said_is_generated=True).expected == 0


def test_an_engine_that_reports_nothing_is_not_judged() -> None:
    audit = PrefixAudit(16)
    audit.tick(plan(), Usage(100, 5), said="a", said_is_generated=True)
    result = audit.tick(plan("a"), Usage(140, 5), said="b", said_is_generated=True)
    assert (result.cached, result.shortfall, audit.ratio) == (None, None, None)


def test_a_continued_prefix_is_part_of_what_is_said() -> None:
    audit = PrefixAudit(1)
    asked = replace(plan(), continue_with="</response>")
    audit.tick(asked, Usage(103, 5, 0), said="</response> yes", said_is_generated=True)
    result = audit.tick(plan("</response> yes"), Usage(140, 5, 107), said="b", said_is_generated=True)
    assert (result.expected, result.shortfall) == (107, None)


def test_a_session_keeps_its_promises_across_failures_queries_and_switches() -> None:
    driver = Driver(chunk_frames=20, context_tokens=32768)
    for number in range(200):
        driver.tick("word" if number % 7 == 0 else "")
        if number % 13 == 0:
            driver.frame()
            driver.begin()
            driver.fail()
        if number % 31 == 0:
            driver.ask(f"question {number}")
        if number == 99:
            driver.apply(EngineLost(reason="killed"))
        driver.background(summary_after=2)
    assert len(driver.switches) > 8
    assert not [result for result in driver.results if result.shortfall]
    assert driver.audit.ratio == 1.0


def test_common_prefix() -> None:
    assert common(b"abcd", b"abxd") == 2
    assert common(b"", b"x") == 0
    assert common(b"abc", b"abcd") == 3
