"""Runs with sound: barge-ins, turns, ledgers, client timings."""

from __future__ import annotations

from evals.metrics.acts import Did, acts_of
from evals.metrics.sound import client_timing, heard_of, sound_of
from evals.readers.clip import Clip, Expected, Kind, Query, Slot, Speech
from tests.evals.metrics.made import response, timing


def clip_of(*speech: Speech) -> Clip:
    return Clip(id="c", video="c.mp4", queries=(Query(id="q", text="Talk."),), speech=speech)


def says(name: str, start: float, expects: Expected, within_ms: int = 1000) -> Speech:
    return Speech(id=name, start_s=start, end_s=start + 1, expects=expects, within_ms=within_ms)


def test_a_response_is_heard_from_its_first_audio_on_for_as_long_as_it_played() -> None:
    (heard,) = heard_of([response("a", 2.0, 3000, made_ms=5000, status="cancelled")])
    assert (heard.start_s, heard.end_s, heard.cut) == (2.1, 5.1, True)
    assert heard_of([response("a", 2.0, 0, timing={}), {"kind": "unit"}]) == []


def test_barge_ins_stop_and_coughs_do_not() -> None:
    rows = [
        response("a", 0.9, 2500, made_ms=9000, status="cancelled"),
        response("b", 9.9, 5000, made_ms=9000, status="cancelled"),
        response("c", 19.9, 5000),
        response("d", 29.9, 5000, status="cancelled"),
        response("e", 39.9, 5000),
    ]
    clip = clip_of(
        says("in time", 3.0, Expected.STOP),
        says("too late", 12.0, Expected.STOP),
        says("not at all", 22.0, Expected.STOP),
        says("cough", 33.0, Expected.GO_ON),
        says("yes", 42.0, Expected.GO_ON),
        says("over nothing", 50.0, Expected.STOP),
    )
    found = sound_of([(clip, rows)])
    assert found["barge_in"]["count"] == 3
    assert (found["barge_in"]["in_time"], found["barge_in"]["went_on"]) == (1, 1)
    assert found["barge_in"]["speech_start_to_last_heard_ms"]["max"] == 3000
    assert found["barge_in"]["wasted_ms"] == 6500 + 4000
    assert found["go_on"] == {"count": 2, "false_stops": 1}


def test_a_question_is_answered_by_what_is_heard_before_the_next_speech() -> None:
    clip = clip_of(
        says("a", 0.0, Expected.ANSWER, 500),
        says("b", 5.0, Expected.ANSWER),
        says("c", 20.0, Expected.ANSWER),
    )
    found = sound_of([(clip, [response("x", 1.3, 1000), response("y", 8.0, 1000)])])["turns"]
    assert (found["count"], found["in_time"], found["unanswered"]) == (3, 1, 1)
    assert found["speech_end_to_first_audio_ms"]["max"] == 2100


def test_a_question_that_waits_for_something_to_happen_is_not_left_unanswered() -> None:
    """What is due at once is a turn; an alert is answered when its event comes."""
    queries = (
        Query(id="alert", at_s=1, text="Say when it comes.", skill="alert"),
        Query(id="never", at_s=5, text="Say when it goes.", skill="alert"),
        Query(id="look", at_s=10, text="What is there?", skill="look"),
    )
    slots = (
        Slot(id="s1", query="alert", kind=Kind.ALERT, start_s=4, end_s=9),
        Slot(id="s2", query="look", kind=Kind.ANSWER, start_s=10, end_s=15),
    )
    speech = tuple(
        Speech(id=query.id, start_s=query.at_s - 1, end_s=query.at_s, text=query.text) for query in queries
    )
    clip = Clip(id="c", video="c.mp4", queries=queries, slots=slots, speech=speech)
    turns = sound_of([(clip, [response("a", 4.2, 500), response("b", 10.4, 500)])])["turns"]
    assert (turns["count"], turns["in_time"], turns["unanswered"]) == (1, 1, 0)


def test_ledgers_are_added_up_and_held_against_their_order() -> None:
    upside_down = {"generated_ms": 100, "sent_ms": 100, "played_ms": 200}
    rows = [response("a", 0, 1000, made_ms=1500), response("b", 5, 100, playback=upside_down)]
    ledger = sound_of([(clip_of(), rows)])["ledger"]
    assert (ledger["generated_ms"], ledger["played_ms"], ledger["unheard_ms"]) == (1600, 1200, 500)
    assert ledger["disordered"] == 1


def test_client_timings_pool_what_can_be_pooled() -> None:
    found = client_timing([timing(100, 3, 40), timing(300, 1, 90), {}])
    assert found["response_created_to_first_audio_ms"]["mean"] == 200
    assert found["inter_chunk_gap_ms"] == {"count": 4, "mean": (3 * 20 + 45) / 4, "max": 90, "worst_p95": 90}
    assert found["commit_to_first_audio_ms"]["count"] == found["chunk_duration_ms"]["count"] == 0
    assert found["max_chunk_gap_ms"]["max"] == 90


def test_rows_with_sound_are_acts_too() -> None:
    rows = [{"kind": "unit", "unit": n, "start_ms": n * 1000, "end_ms": (n + 1) * 1000} for n in range(3)]
    rows += [response("a", 1.4, 500), response("listened", 2.0, 0, transcript="", audio_ms=0)]
    found = acts_of(clip_of(), [*rows, {"kind": "session", "ok": True}])
    assert [(act.at_s, act.did) for act in found] == [
        (0.0, Did.SILENCE),
        (1.4, Did.RESPONSE),
        (2.0, Did.SILENCE),
    ]
    assert sound_of([(clip_of(), [{"tick": 1}])]) == {}
