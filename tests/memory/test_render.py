"""Renderers: messages for the engine, canonical bytes with a map, and the summarizer's requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.plan import FrameRef, Head, Image, Plan, Section, Text, Turn, WantRollup, WantSummary
from memory.render import chat_messages, plan_bytes, rollup_messages, summary_messages
from tests.memory.driver import JOYVL


def frame(ms: int) -> FrameRef:
    return FrameRef(f"f{ms}", f"u{ms}", ms, 512, 512)


HEAD = Head(1, "be good", (Section("history", "[History]"), Section("query", "[Query]\nwhat?")))
FIRST = Turn(0, (Text("note\n"), Text("<0.0 seconds>"), Image(frame(0))), "</silence>")
OPEN = Turn(1, (Text("<1.0 seconds>"), Image(frame(1000)), Image(frame(1500))), None)
PLAN = Plan(2, HEAD, (FIRST,), OPEN)


def test_messages() -> None:
    assert chat_messages(PLAN) == [
        {"role": "system", "content": "be good"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "[History]\n\n[Query]\nwhat?\n\nnote\n<0.0 seconds>"},
                {"type": "image_url", "uuid": "u0"},
            ],
        },
        {"role": "assistant", "content": "</silence>"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<1.0 seconds>"},
                {"type": "image_url", "uuid": "u1000"},
                {"type": "image_url", "uuid": "u1500"},
            ],
        },
    ]
    json.dumps(chat_messages(PLAN))


def test_the_reply_continues_a_given_prefix() -> None:
    assert chat_messages(replace(PLAN, continue_with="</response>"))[-1] == {
        "role": "assistant",
        "content": "</response>",
    }


def test_a_prewarm_without_turns_is_the_memory_text_alone() -> None:
    messages = chat_messages(Plan(2, HEAD, (), None, generate=False))
    assert messages[1:] == [
        {"role": "user", "content": [{"type": "text", "text": "[History]\n\n[Query]\nwhat?\n\n"}]}
    ]


def test_the_frozen_part_is_head_and_answered_turns() -> None:
    now = plan_bytes(PLAN)
    later = plan_bytes(replace(PLAN, turns=(FIRST, replace(OPEN, said="</response> hi")), open_turn=None))
    other = plan_bytes(replace(PLAN, open_turn=replace(OPEN, user=(Text("else"),))))
    assert later.data.startswith(now.data[: now.frozen])
    assert other.data.startswith(now.data[: now.frozen]) and other.frozen == now.frozen
    assert b"u0" in now.data[: now.frozen] and b"u1000" not in now.data[: now.frozen]
    assert later.frozen > now.frozen


def test_a_plan_that_is_answered_extends_the_request() -> None:
    """What the engine saw and generated is a prefix of the next request: the audit's promise."""
    now = plan_bytes(PLAN)
    answered = replace(
        PLAN, turns=(FIRST, replace(OPEN, said="</response> hi")), open_turn=replace(OPEN, tick=2)
    )
    assert plan_bytes(answered).data.startswith(now.data + b"</response> hi")


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, open_turn=None), Plan(0, HEAD, (), OPEN)])
def test_segments_tile_the_bytes(plan: Plan) -> None:
    mapped = plan_bytes(plan)
    ends = [0, *(s.end for s in mapped.segments)]
    assert [s.start for s in mapped.segments] == ends[:-1] and ends[-1] == len(mapped.data)


def test_a_byte_is_located_by_section_and_turn() -> None:
    mapped = plan_bytes(PLAN)
    place = mapped.locate(mapped.data.index(b"u1500"))
    assert (place.section, place.turn) == ("user", 1)
    assert mapped.locate(mapped.data.index(b"what?")).section == "query"
    assert mapped.locate(10**9).section == "generate"


def test_a_summary_request_has_the_query_and_frames_after_their_times() -> None:
    want = WantSummary(3, 1, 0, 10_000, (frame(0), frame(5000)))
    [message] = summary_messages(want, JOYVL, "en", query="how many <|im_end|> people?", target=120)
    text, *rest = message["content"]
    assert "how many < |im_end|> people?" in text["text"] and "120" in text["text"]
    assert "10.0" in text["text"] and "English" in text["text"]
    assert text["text"].endswith("<0.0 seconds>")
    assert [part.get("uuid", part.get("text")) for part in rest] == ["u0", "<5.0 seconds>", "u5000"]


def test_without_a_query_the_summary_request_says_so() -> None:
    [message] = summary_messages(WantSummary(0, 1, 0, 1, (frame(0),)), JOYVL, "zh", query=None, target=9)
    assert JOYVL.phrases["zh"].texts["no_query"] in message["content"][0]["text"]


def test_a_roll_up_request_holds_the_texts_as_data() -> None:
    want = WantRollup((0, 1), 1, ("one", "two"), 0, 20_000)
    [message] = rollup_messages(want, JOYVL, "en", query=None, target=99)
    text = message["content"][0]["text"]
    assert text.endswith("one\n\ntwo") and "99" in text


PARTS = st.one_of(
    st.builds(Text, st.text(max_size=8)), st.builds(lambda ms: Image(frame(ms)), st.integers(0, 9))
)
TURNS = st.builds(
    Turn,
    st.integers(0, 99),
    st.lists(PARTS, max_size=4).map(tuple),
    st.one_of(st.none(), st.text(max_size=8)),
)
HEADS = st.builds(
    Head,
    st.integers(0, 9),
    st.text(max_size=8),
    st.lists(st.builds(Section, st.sampled_from(["history", "qa"]), st.text(max_size=8)), max_size=2).map(
        tuple
    ),
)


def anew(plan: Plan) -> Plan:
    """The same plan of which nothing was rendered yet."""
    turns = tuple(replace(turn) for turn in plan.turns)
    return replace(
        plan, head=replace(plan.head), turns=turns, open_turn=plan.open_turn and replace(plan.open_turn)
    )


@given(st.lists(HEADS, min_size=1, max_size=2), st.lists(TURNS, min_size=1, max_size=6), st.data())
def test_what_was_rendered_before_is_rendered_the_same(
    heads: list[Head], turns: list[Turn], data: st.DataObject
) -> None:
    """Contract: turns stand in several plans, at several places and on several heads; each plan is as if it
    were rendered alone."""
    for _ in range(4):
        picked = data.draw(st.lists(st.sampled_from(turns), max_size=4))
        opened = data.draw(st.one_of(st.none(), st.sampled_from(turns)))
        plan = Plan(0, data.draw(st.sampled_from(heads)), tuple(picked), opened)
        assert chat_messages(plan) == chat_messages(anew(plan))
        assert plan_bytes(plan).data == plan_bytes(anew(plan)).data
        assert plan_bytes(plan).segments == plan_bytes(anew(plan)).segments
        if picked or opened:
            same = zip(chat_messages(plan), chat_messages(plan), strict=True)
            assert all(first is second for first, second in same)
