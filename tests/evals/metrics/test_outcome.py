"""What becomes of slots and of what was said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.metrics.outcome import Asked, Place, Why, asked_of
from evals.readers.clip import Judging, Kind, Official, Query
from tests.evals.metrics.made import acts, clip_of, judged, slot


def places(outcome: object) -> dict[float, tuple[Place, str | None]]:
    return {said.act.at_s: (said.place, said.slot) for said in outcome.said}  # type: ignore[attr-defined]


def test_each_thing_said_has_its_place() -> None:
    clip = clip_of(slot(10, 15), slot(40, 45, "s2"))
    said = {2.0: "hm", 7.0: "soon", 11.0: "there", 13.0: "still there", 20.0: "gone", 49.0: "it was there"}
    outcome = judged(clip, said)
    assert places(outcome) == {
        2.0: (Place.FALSE, None),
        7.0: (Place.EARLY, "s1"),
        11.0: (Place.REPLY, "s1"),
        13.0: (Place.EXTRA, "s1"),
        20.0: (Place.FALSE, None),
        49.0: (Place.LATE, "s2"),
    }
    assert [(s.why, s.act.at_s if s.act else None) for s in outcome.slots] == [
        (Why.RIGHT, 11.0),
        (Why.MISSED, None),
    ]


def test_what_is_said_to_another_query_answers_no_slot() -> None:
    queries = (Query(id="q1", text="a"), Query(id="q2", at_s=12, until_s=14, text="b"))
    outcome = judged(clip_of(slot(10, 20), queries=queries), {13.0: "there", 15.0: "there"})
    assert places(outcome)[13.0][0] is Place.FALSE
    # After a query is withdrawn none is in force, the one before it neither.
    assert places(outcome)[15.0][0] is Place.FALSE
    assert outcome.slots[0].why is Why.MISSED


def test_words_said_again_are_repeats_but_not_where_they_answer() -> None:
    clip = clip_of(slot(10, 12, kind=Kind.REPEAT), slot(20, 22, "s2", kind=Kind.REPEAT))
    outcome = judged(clip, {10.0: "A car.", 11.0: "a car", 20.0: "A car!", 30.0: "The car", 31.0: "A bus"})
    assert [said.repeated for said in outcome.said] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        (Kind.DELEGATE, "?who made it", Why.RIGHT),
        (Kind.DELEGATE, "I don't know", Why.NOT_DELEGATED),
        (Kind.ANSWER, "?what is it", Why.DELEGATED),
        (Kind.ANSWER, "red", Why.RIGHT),
        (Kind.ANSWER, "blue", Why.WRONG),
    ],
)
def test_a_slot_wants_an_answer_or_a_delegation(kind: Kind, said: str, why: Why) -> None:
    clip = clip_of(slot(10, 15, kind=kind, accepted=("red",), judging=Judging.EXACT))
    assert judged(clip, {11.0: said}).slots[0].why is why


def test_free_answers_wait_for_a_judge() -> None:
    clip = clip_of(
        slot(10, 15, accepted=("red",), judging=Judging.JUDGE), slot(30, 32, "s2", accepted=("x",))
    )
    said = {11.0: "crimson"}
    case = Asked("Say when it comes.", ("red",), "crimson")
    assert asked_of(clip, acts(clip, said), 60) == {case}
    assert judged(clip, said).slots[0].right is None
    assert judged(clip, said, {case: True}).slots[0].why is Why.RIGHT
    assert judged(clip, said, {case: False}).slots[0].why is Why.WRONG


def test_slots_after_what_was_watched_are_not_judged() -> None:
    outcome = judged(clip_of(slot(10, 15), slot(60, 65, "s2")), {})
    assert [s.slot.id for s in outcome.slots] == ["s1"]
    assert outcome.unreached == ("s2",)


def test_a_query_after_the_last_decision_was_never_asked() -> None:
    queries = (Query(id="q1", text="a"), Query(id="q2", at_s=59.5, text="b"))
    outcome = judged(clip_of(slot(10, 15), slot(59.5, 62, "s2", query="q2"), queries=queries), {})
    assert outcome.unreached == ("s2",)
    assert judged(clip_of(slot(59, 62)), {}).unreached == ()


def test_the_rules_of_others_stand_beside_ours() -> None:
    choice = slot(
        10,
        15,
        kind=Kind.ANSWER,
        accepted=("A",),
        judging=Judging.CHOICE,
        choices=("x", "y"),
        official=Official.OVO_CHOICE,
    )
    count = slot(
        20,
        25,
        "s2",
        kind=Kind.COUNT,
        accepted=("210",),
        judging=Judging.NUMBER,
        official=Official.OVO_COUNT,
    )
    yes = slot(
        30,
        35,
        "s3",
        kind=Kind.ANSWER,
        accepted=("No",),
        judging=Judging.YES_NO,
        official=Official.OVO_YES_NO,
    )
    outcome = judged(clip_of(choice, count, yes), {11.0: "ALL", 21.0: "2 of 10", 31.0: "Nothing yet"})
    assert [s.official for s in outcome.slots] == [True, True, True]
    assert [s.right for s in outcome.slots] == [False, False, False]
    missed = judged(clip_of(choice), {})
    assert (missed.slots[0].official, missed.slots[0].right) == (False, False)


@pytest.mark.parametrize(
    ("said", "official", "right"),
    [
        ({29.0: "3"}, True, True),
        ({30.0: "13"}, True, False),
        ({29.0: "4", 30.0: "3"}, False, False),
        # Its polling stops at the first output; ours takes the first one within the time.
        ({24.0: "3", 29.0: "3"}, False, True),
        ({32.0: "3"}, False, False),
        ({20.5: "3", 29.0: "3"}, True, True),
        ({}, False, False),
    ],
)
def test_streamingbench_beside_the_strict_rule(said: dict[float, str], official: bool, right: bool) -> None:
    wanted = slot(
        27,
        31,
        onset_s=29,
        accepted=("3",),
        judging=Judging.CONTAINS,
        official=Official.STREAMINGBENCH_PROACTIVE,
    )
    query = Query(id="q1", at_s=20, text="Output 3 at 3 points.")
    (found,) = judged(clip_of(wanted, queries=(query,)), said).slots
    assert (found.official, found.right) == (official, right)


def test_omni_duplex_judges_all_that_was_said_in_the_window() -> None:
    wanted = slot(10, 20, accepted=("She sits.",), judging=Judging.JUDGE, official=Official.OMNI_DUPLEX)
    clip = clip_of(wanted)
    said = {11.0: "Well.", 15.0: "She sits down."}
    first = Asked("Say when it comes.", ("She sits.",), "Well.")
    whole = Asked("Say when it comes.", ("She sits.",), "Well. She sits down.")
    assert asked_of(clip, acts(clip, said), 60) == {first, whole}
    (found,) = judged(clip, said, {first: False, whole: True}).slots
    assert (found.official, found.right) == (True, False)
    assert judged(clip, said).slots[0].official is None
    assert judged(clip, {}).slots[0].official is False


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8)), max_size=6),
    st.sets(st.integers(0, 59).map(float), max_size=20),
)
def test_everything_said_has_one_place_and_every_slot_at_most_one_reply(
    spans: list[tuple[int, int]], times: set[float]
) -> None:
    clip = clip_of(*(slot(a, a + b, f"s{n}") for n, (a, b) in enumerate(spans)))
    outcome = judged(clip, dict.fromkeys(times, "there"))
    assert len(outcome.said) == len(times)
    replies = [said for said in outcome.said if said.place is Place.REPLY]
    assert len({said.slot for said in replies}) == len(replies)
    assert {s.slot.id for s in outcome.slots if s.act} == {said.slot for said in replies}
    for said in replies:
        owner = next(s.slot for s in outcome.slots if s.slot.id == said.slot)
        assert owner.start_s <= said.act.at_s <= owner.end_s
    for said in outcome.said:
        inside = any(s.slot.start_s <= said.act.at_s <= s.slot.end_s for s in outcome.slots)
        assert (said.place in (Place.REPLY, Place.EXTRA)) == inside
