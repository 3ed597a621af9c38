from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.backends.replay.answer import AnswerParser, Outcome, canonical
from orchestrator.backends.replay.tags import Hit
from orchestrator.session.backend import Action
from tests.backends.replay.packs import GRAMMAR

SILENCE, RESPONSE, DELEGATE = Action.SILENCE, Action.RESPONSE, Action.DELEGATE


def parse(*deltas: str, query: str | None = None, prefix: str = "") -> tuple[str, Outcome]:
    parser = AnswerParser(GRAMMAR, query, prefix)
    shown = "".join(parser.feed(d) for d in deltas) + parser.finish()
    return shown, parser.outcome()


# raw answer, standing query -> action, text, question, healthy, parses
TABLE = [
    ("", None, SILENCE, "", None, False, False),
    ("  \n", None, SILENCE, "", None, False, False),
    ("</silence>", None, SILENCE, "", None, True, True),
    ("</response> Fire!", None, RESPONSE, "Fire!", None, True, True),
    ("</response> note </delegation> what?", None, DELEGATE, "note", "what?", True, True),
    ("</response>", None, SILENCE, "", None, True, False),
    ("the weather is nice", None, SILENCE, "", None, False, False),
    ("junk </response> real", None, RESPONSE, "real", None, True, False),
    ("junk </silence>", None, SILENCE, "", None, True, False),
    ("</silence></response> Fire!", None, RESPONSE, "Fire!", None, True, False),
    ("</response></silence> Fire!", None, RESPONSE, "Fire!", None, True, False),
    ("</response> Fire! </silence>", None, RESPONSE, "Fire!", None, True, False),
    ("</silence> Fire! </response>", None, RESPONSE, "Fire!", None, True, False),
    ("</silence> not for you", None, SILENCE, "", None, True, False),
    ("</response></silence>", None, SILENCE, "", None, True, False),
    ("</response> one\ntwo\n\nthree", None, RESPONSE, "one\ntwo\n\nthree", None, True, True),
    ("</response> note\n</delegation> q1\nq2", None, DELEGATE, "note", "q1\nq2", True, True),
    ("</delegation> q", None, DELEGATE, "", "q", True, True),
    ("<delegation> q", None, DELEGATE, "", "q", True, True),
    ("note </delegation> q", None, DELEGATE, "note", "q", True, True),
    ("</response> a </delegate> q", None, DELEGATE, "a", "q", True, True),
    ("</response> a <DELEGATE/> q", None, DELEGATE, "a", "q", True, True),
    ("</silence> a </delegation> q", None, DELEGATE, "a", "q", True, False),
    ("</response> x </delegation>", "who?", DELEGATE, "x", "who?", True, False),
    ("</response> x </delegation>", None, RESPONSE, "x", None, True, False),
    ("</delegation>", None, SILENCE, "", None, True, False),
    ("junk </delegation>", None, SILENCE, "", None, True, False),
    ("</response> n </delegation> q1 </delegation> q2", None, DELEGATE, "n", "q1", True, False),
    ("<delegation>q1</delegation> more", None, DELEGATE, "", "q1", True, False),
    ("<delegation></delegation> q", None, DELEGATE, "", "q", True, True),
    ("</delegation> q </response> note", None, DELEGATE, "note", "q", True, False),
    ("</Silence>", None, SILENCE, "", None, True, True),
    ("<silence>", None, SILENCE, "", None, True, True),
    ("<silence/>", None, SILENCE, "", None, True, True),
    ("<RESPONSE> hi", None, RESPONSE, "hi", None, True, True),
    ("</ response > hi", None, RESPONSE, "hi", None, True, True),
    ("<response>hi</response>", None, RESPONSE, "hi", None, True, False),
    ("</response> Fire! </sil", None, RESPONSE, "Fire!", None, True, False),
    ("</response> Fire! <", None, RESPONSE, "Fire!", None, True, False),
    ("</respons", None, SILENCE, "", None, False, False),
    ("</response> if a < b", None, RESPONSE, "if a < b", None, True, True),
    ("</response> a</silence>b", None, RESPONSE, "a\nb", None, True, False),
    ("</response> hi<|im_end|>", None, RESPONSE, "hi", None, True, False),
    ("</response> see <|image_pad|> there", None, RESPONSE, "see\nthere", None, True, False),
    ("</response> caf\ufffd", None, RESPONSE, "caf", None, True, False),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "query", "action", "text", "question", "healthy", "parses"), TABLE)
def test_outcome_table(
    raw: str, query: str | None, action: Action, text: str, question: str | None, healthy: bool, parses: bool
) -> None:
    shown, outcome = parse(raw, query=query)
    assert (outcome.action, outcome.text, outcome.question) == (action, text, question)
    assert (outcome.healthy, outcome.parses) == (healthy, parses)
    assert shown == text
    assert outcome.raw == raw


def test_genuine_silence_is_the_models_own_word() -> None:
    assert parse("</silence>")[1].genuine_silence
    assert parse("</response></silence>")[1].genuine_silence
    assert not parse("</response>")[1].genuine_silence
    assert not parse("")[1].genuine_silence
    assert not parse("free text")[1].genuine_silence


def test_wrong_case_or_slash_is_counted() -> None:
    assert parse("</Response> hi")[1].oddities == {"tag_spelling": 1}
    assert parse("</response> hi")[1].oddities == {}


def test_text_streams_as_soon_as_it_is_certain() -> None:
    parser = AnswerParser(GRAMMAR)
    fed = [parser.feed(d) for d in ("</res", "ponse>", " Fi", "re", "! ", "</", "b> ok")]
    assert fed == ["", "", "Fi", "re", "!", "", " </b> ok"]


def test_note_without_response_tag_waits_for_its_question() -> None:
    parser = AnswerParser(GRAMMAR)
    assert parser.feed("I ask </delegation>") == ""
    assert parser.feed(" w") == "I ask"


def test_continued_prefix_is_part_of_the_answer() -> None:
    shown, outcome = parse(" All is well.", prefix="</response>")
    assert shown == "All is well."
    assert outcome.raw == "</response> All is well."
    assert outcome.action is RESPONSE and outcome.parses


def test_flaw_17_no_alert_lost_no_tag_spoken() -> None:
    """Each row of the known parser table that lost an alert, lost a delegation or spoke a tag."""
    assert parse("</silence></response> Fire!")[1].text == "Fire!"
    assert parse("</response> note\n</delegation> q")[1].question == "q"
    assert parse("</response> a </delegate> q")[0] == "a"
    assert parse("</response></silence>")[0] == ""
    assert parse("</Silence>")[0] == parse("<silence>")[0] == ""


PIECES = st.sampled_from(
    ["</silence>", "</response>", "</delegation>", "<response>", "<Delegate>", "</", "<", "/", ">", "sil",
     "response", "ence>", " ", "\n", "Fire!", "a b", "é", "\ufffd", "🔥", "<|im_end|>", "<|im", "_end|>",
     "</ silence >", "<think>", "delegation>", "ſ", "K"]
)  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "action", "text"),
    [
        ("</response> One moment. </delegation> Who is it?", RESPONSE, "One moment."),
        ("One moment. </delegation> Who is it?", SILENCE, ""),
        ("</delegation>", SILENCE, ""),
        ("</delegation> Who is it? </response> A bus.", RESPONSE, "A bus."),
    ],
)
def test_what_was_not_offered_is_not_delegated(raw: str, action: Action, text: str) -> None:
    for deltas in ([raw], list(raw)):
        parser = AnswerParser(GRAMMAR, "what is it?", offered=False)
        shown = "".join(parser.feed(d) for d in deltas) + parser.finish()
        outcome = parser.outcome()
        assert (outcome.action, outcome.text, outcome.question) == (action, text, None)
        assert shown == text and outcome.healthy and not outcome.parses
        assert outcome.oddities["unoffered_delegation"] == 1


RAW = st.lists(PIECES, max_size=14).map("".join)


@settings(deadline=None)
@given(raw=RAW, cuts=st.lists(st.integers(0, 200), max_size=12), query=st.sampled_from([None, "who?"]))
def test_any_split_gives_the_same_result(raw: str, cuts: list[int], query: str | None) -> None:
    at = sorted({0, len(raw), *(c for c in cuts if c < len(raw))})
    deltas = [raw[a:b] for a, b in pairwise(at)]
    whole = parse(raw, query=query)
    assert parse(*deltas, query=query) == whole
    assert parse(*raw, query=query) == whole
    assert whole[0] == whole[1].text


@settings(deadline=None)
@given(raw=RAW)
def test_no_tag_and_no_control_token_is_ever_visible(raw: str) -> None:
    _, outcome = parse(*raw)
    for text in (outcome.text, outcome.question or ""):
        assert not [p for p in GRAMMAR.pieces(text) if isinstance(p, Hit)]


@pytest.mark.parametrize("rest", ["\ufffd</", "</", "\ufffd"])
def test_broken_characters_and_beginnings_of_tags_are_no_question(rest: str) -> None:
    _, outcome = parse(f"</delegation>{rest}</silence>")
    assert (outcome.action, outcome.question) == (SILENCE, None)
    assert outcome.oddities["delegation_without_question"] == 1
    _, asked = parse(f"</delegation>{rest}</silence>", query="What is it?")
    assert (asked.action, asked.question) == (DELEGATE, "What is it?")


@settings(deadline=None)
@given(raw=RAW, query=st.sampled_from([None, "who </silence> is <|im_end|> it"]))
def test_canonical_form_reads_as_what_the_client_received(raw: str, query: str | None) -> None:
    _, outcome = parse(raw, query=query)
    question = GRAMMAR.without_tags(outcome.question or "")
    # A lone "<" may end a visible text; read again it is the beginning of a tag.
    assume(all(GRAMMAR.without_tags(t) == t for t in (outcome.text, question)))
    said = canonical(GRAMMAR, outcome.action, outcome.text, outcome.question)
    again = parse(said)[1]
    assert again.action is outcome.action or not question
    assert again.text == outcome.text
    assert "<|im_end|>" not in said
