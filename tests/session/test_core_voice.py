"""Spoken responses: the ledger, what was heard, acks and truncation, cancelling, and output that drains."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.session.backend import (
    Action,
    AudioDelta,
    Capabilities,
    Decision,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.commands import (
    AppendInput,
    AskQuery,
    Cancel,
    ClearOutput,
    CommitInput,
    Configure,
    CreateResponse,
    DeleteItem,
    PlaybackAck,
    RetrieveItem,
    TruncateItem,
)
from orchestrator.session.effects import BackendPlayback, BackendTell
from orchestrator.session.events import (
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputAudioDelta,
    OutputCleared,
    PlaybackAcknowledged,
    ResponseCreated,
    ResponseDone,
)
from orchestrator.session.fence import Fence
from orchestrator.session.history import Line
from orchestrator.session.told import Heard
from orchestrator.session.units import InputUnit
from tests.session.driver import Driver, make_core

VOICE = Capabilities(1000, optional_input_modalities=("audio", "video"), output_modalities=("text", "audio"))
DRAINS = Capabilities(
    1000,
    optional_input_modalities=("audio", "video"),
    output_modalities=("text", "audio"),
    concurrent_turns=True,
)
F0 = Fence()
TEXT = "0123456789abcdefghij"


def driver(capabilities: Capabilities = VOICE, **config: Any) -> Driver:
    config.setdefault("auto_response", True)
    d = Driver(make_core(capabilities, **config))
    d.send(AppendInput("a", InputUnit(pcm=b"\x01" * 8), is_speech=True, duration_ms=200))
    return d


def chunk(ms: int, fence: Fence = F0, marks: tuple[tuple[int, int], ...] = ()) -> AudioDelta:
    return AudioDelta(fence, bytes(2 * 24 * ms), 24000, marks)


def speak(d: Driver, *, end: bool = True, fence: Fence | None = None) -> str:
    """Two seconds of speech, ten characters each; the response's id."""
    fence = fence or d.core.fence
    d.yields(
        Decision(fence, 1, Action.RESPONSE),
        TextDelta(fence, TEXT[:10]),
        chunk(1000, fence, ((10, 1000),)),
        TextDelta(fence, TEXT[10:]),
        chunk(1000, fence, ((20, 2000),)),
    )
    if end:
        d.yields(TurnEnd(fence))
    return d.of(ResponseCreated)[-1].response_id


def heard(d: Driver) -> list[tuple[str, bool]]:
    facts = [e.fact for e in d.done if isinstance(e, BackendTell)]
    return [(f.text, f.complete) for f in facts if isinstance(f, Heard)]


def lines(d: Driver) -> list[Line]:
    return [line for line in d.core.history.entries() if line.role == "assistant"]


def test_generated_and_sent_advance_and_nothing_is_heard_without_an_ack() -> None:
    d = driver()
    speak(d)
    done = d.of(ResponseDone)[0]
    assert (done.cursors.generated_ms, done.cursors.sent_ms) == (2000, 2000)
    assert not done.heard
    assert lines(d) == []
    assert heard(d) == [("", False)]


def test_acks_fill_history_in_place_and_complete_it() -> None:
    d = driver()
    response_id = speak(d)
    d.send(PlaybackAck(1200.7, response_id=response_id))
    assert [line.text for line in lines(d)] == [TEXT[:12]]
    d.send(PlaybackAck(800, response_id=response_id))
    played = [e.cursors.played_ms for e in d.of(PlaybackAcknowledged)]
    assert played == [1200, 1200]
    d.send(PlaybackAck(2000, response_id=response_id))
    assert [(line.text, line.complete) for line in lines(d)] == [(TEXT, True)]
    assert heard(d)[-1] == (TEXT, True)
    assert [e.history_committed for e in d.of(PlaybackAcknowledged)] == [True, False, True]
    assert BackendPlayback(response_id, F0, 1200, 1200) in d.done


@pytest.mark.parametrize(
    ("ack", "code"),
    [
        (PlaybackAck(1, response_id="r", item_id="item_other"), "playback_item_mismatch"),
        (PlaybackAck(1, response_id="unknown"), "playback_item_not_found"),
    ],
)
def test_acks_that_mean_nothing_are_refused_and_the_session_goes_on(ack: PlaybackAck, code: str) -> None:
    d = driver()
    speak(d)
    d.send(ack)
    assert d.rejects() == [code]
    assert d.core.state.is_open


def test_a_late_ack_after_the_user_went_on_is_too_late_unless_the_slot_was_reserved() -> None:
    d = driver()
    late = speak(d)
    d.send(CommitInput())
    d.send(PlaybackAck(2000, response_id=late))
    assert d.rejects() == ["playback_ack_too_late"]
    assert lines(d) == []
    assert d.core.statistics()["playback"] == {"ledgers": 1, "unplayed": 0}, "but it was played"
    d.send(AppendInput("b", InputUnit(pcm=b"\x01" * 8), is_speech=True))
    reserved = speak(d)
    d.send(PlaybackAck(0, response_id=reserved))
    d.send(CommitInput())
    d.send(PlaybackAck(2000, response_id=reserved))
    assert [line.text for line in lines(d)] == [TEXT]


def test_a_cancel_keeps_exactly_what_was_played() -> None:
    d = driver()
    response_id = speak(d, end=False)
    d.send(PlaybackAck(1500, response_id=response_id))
    d.send(Cancel())
    done = d.of(ResponseDone)[0]
    assert done.text == TEXT[:15]
    assert done.heard
    assert [line.text for line in lines(d)] == [TEXT[:15]]
    assert heard(d) == [(TEXT[:15], False)]


def test_a_late_ack_of_a_cancelled_response_changes_what_was_heard_at_most_up_to_it() -> None:
    d = driver()
    response_id = speak(d, end=False)
    d.send(Cancel())
    assert lines(d) == []
    d.send(PlaybackAck(500, response_id=response_id))
    assert [line.text for line in lines(d)] == [TEXT[:5]]


def test_a_truncation_caps_history_for_good() -> None:
    d = driver()
    response_id = speak(d)
    item_id = "item_" + response_id
    d.send(TruncateItem(item_id, 0, 500))
    d.send(PlaybackAck(2000, response_id=response_id))
    assert [line.text for line in lines(d)] == [TEXT[:5]]
    truncated, acknowledged = d.events()[-3:-1]
    assert isinstance(truncated, ItemTruncated)
    assert isinstance(acknowledged, PlaybackAcknowledged)
    assert acknowledged.truncate
    d.send(RetrieveItem(item_id))
    assert d.of(ItemRetrieved)[0].item.content[0].text == TEXT[:5]


@pytest.mark.parametrize(
    ("item", "index", "end_ms", "code"),
    [
        (None, 0, 2001, "bad_event"),
        (None, 0, -11, "bad_event"),
        (None, 1, 0, "bad_event"),
        ("item_unknown", 0, 0, "item_not_found"),
        ("", 0, 0, "missing_item_id"),
    ],
)
def test_truncations_that_mean_nothing(item: str | None, index: int, end_ms: int, code: str) -> None:
    d = driver()
    response_id = speak(d)
    d.send(TruncateItem("item_" + response_id if item is None else item, index, end_ms))
    assert d.rejects() == [code]
    assert d.of(ItemTruncated) == []


def test_a_text_item_cannot_be_truncated() -> None:
    d = driver(modalities=("text",))
    d.yields(Decision(Fence(), 1, Action.RESPONSE), TextDelta(Fence(), "hi"), TurnEnd(Fence()))
    d.send(TruncateItem("item_" + d.of(ResponseCreated)[0].response_id, 0, 0))
    assert d.rejects() == ["bad_event"]


# --- stopping playback -------------------------------------------------------------------------------


def test_clearing_the_output_of_an_active_response_cancels_it() -> None:
    d = driver()
    speak(d, end=False)
    d.send(ClearOutput())
    assert len(d.of(OutputCleared)) == 1
    assert [(e.status, e.reason) for e in d.of(ResponseDone)] == [("cancelled", "output_audio_buffer_clear")]


def test_clearing_the_output_of_a_finished_response_only_stops_its_playback() -> None:
    d = driver()
    response_id = speak(d)
    d.send(PlaybackAck(500, response_id=response_id))
    epoch = d.core.fence.epoch
    d.send(ClearOutput())
    assert [e.response_id for e in d.of(OutputCleared)] == [response_id]
    assert len(d.of(ResponseDone)) == 1
    assert d.core.fence.epoch == epoch
    d.send(ClearOutput())
    assert len(d.of(OutputCleared)) == 1, "there is nothing left to stop"


def test_a_barge_in_over_a_finished_response_stops_what_is_still_played() -> None:
    d = driver(auto_response=False)
    response_id = speak(d)
    d.send(AppendInput("b", InputUnit(pcm=b"\x01" * 8), is_speech=True, force_barge_in=True))
    assert [e.response_id for e in d.of(OutputCleared)] == [response_id]
    assert [e.status for e in d.of(ResponseDone)] == ["completed"]


def test_a_turn_that_waits_for_a_playback_goes_on_when_it_is_over() -> None:
    d = driver(auto_response=False)
    d.send(CommitInput())
    d.send(CreateResponse())
    response_id = speak(d)
    d.send(AppendInput("b", InputUnit(pcm=b"\x01" * 8), is_speech=True, duration_ms=800))
    d.send(CommitInput(create_response=True))
    assert len(d.of(ResponseCreated)) == 1
    d.send(PlaybackAck(2000, response_id=response_id))
    assert len(d.of(ResponseCreated)) == 2


def test_a_client_that_never_acks_does_not_block_the_next_turn_for_ever() -> None:
    d = driver(auto_response=False)
    d.send(CommitInput())
    d.send(CreateResponse())
    speak(d)
    d.send(AppendInput("b", InputUnit(pcm=b"\x01" * 8), is_speech=True, duration_ms=800))
    d.send(CommitInput(create_response=True))
    d.now = 8.0
    d.absorb(d.core.tick(d.now, busy=False))
    assert len(d.of(ResponseCreated)) == 2


# --- clients that never ack --------------------------------------------------------------------------


def test_the_wall_clock_commits_what_was_sent_at_playout_speed() -> None:
    d = driver(playback_policy="wall_clock")
    speak(d)
    d.now = 1.5
    d.send(AskQuery("and?", "q"))
    assert [line.text for line in lines(d)] == [TEXT[:15]]
    d.now = 5.0
    d.absorb(d.core.tick(d.now, busy=False))
    assert [(line.text, line.complete) for line in lines(d)] == [(TEXT, True)]
    assert heard(d)[-1] == (TEXT, True)


def test_the_wall_clock_stops_at_a_cancel() -> None:
    d = driver(playback_policy="wall_clock")
    speak(d, end=False)
    d.now = 0.5
    d.send(Cancel())
    d.now = 9.0
    d.absorb(d.core.tick(d.now, busy=False))
    assert [line.text for line in lines(d)] == [TEXT[:5]]


def test_the_first_ack_makes_the_session_ack_only() -> None:
    d = driver(playback_policy="wall_clock")
    assert d.core.view()["playback_commit_policy"] == "wall_clock"
    d.send(PlaybackAck(0))
    assert d.core.view()["playback_commit_policy"] == "ack_only"


# --- responses that drain ----------------------------------------------------------------------------


def test_a_cancel_ends_the_active_and_every_draining_response() -> None:
    d = driver(DRAINS)
    ids = [speak(d, end=False, fence=Fence(0, turn)) for turn in range(3)]
    assert len(set(ids)) == 3
    d.auto = False
    d.send(Cancel())
    assert d.of(ResponseDone) == [], "endings follow the abort"
    d.auto = True
    while d.pending:
        d.carry()
    assert [(e.response_id, e.status) for e in d.of(ResponseDone)] == [(each, "cancelled") for each in ids]


def test_late_audio_of_a_draining_response_goes_to_it() -> None:
    d = driver(DRAINS)
    first = speak(d, end=False, fence=Fence(0, 0))
    second = speak(d, end=False, fence=Fence(0, 1))
    d.yields(chunk(500, Fence(0, 0)), TurnEnd(Fence(0, 0)), TurnEnd(Fence(0, 1)))
    assert [e.response_id for e in d.of(OutputAudioDelta)][-1] == first
    assert [e.response_id for e in d.of(ResponseDone)] == [first, second]


def test_without_concurrent_turns_a_later_turn_ends_the_former_response() -> None:
    d = driver()
    speak(d, end=False, fence=Fence(0, 0))
    speak(d, end=False, fence=Fence(0, 1))
    assert [e.status for e in d.of(ResponseDone)] == ["completed"]


# --- items and settings ------------------------------------------------------------------------------


def test_a_response_kept_out_of_history() -> None:
    d = driver(modalities=("text",))
    d.send(CreateResponse(in_history=False))
    fence = d.core.fence
    d.yields(Decision(fence, 1, Action.RESPONSE), TextDelta(fence, "aside"), TurnEnd(fence))
    assert d.of(ResponseDone)[0].text == "aside"
    assert not d.of(ResponseDone)[0].heard
    assert lines(d) == []
    assert heard(d) == [("", False)]


def test_deleting_an_answer_takes_it_out_of_history_and_tells_the_backend() -> None:
    d = driver(modalities=("text",))
    d.yields(Decision(Fence(), 1, Action.RESPONSE), TextDelta(Fence(), "hi"))
    item_id = "item_" + d.of(ResponseCreated)[0].response_id
    d.send(DeleteItem(item_id))
    assert d.rejects() == ["bad_event"]
    d.yields(TurnEnd(Fence()))
    d.send(DeleteItem(item_id))
    assert [e.item_id for e in d.of(ItemDeleted)] == [item_id]
    assert heard(d) == [("hi", True), ("", False)]
    assert lines(d) == []
    d.send(DeleteItem(item_id))
    assert d.rejects()[-1] == "item_not_found"


def test_the_voice_cannot_change_once_heard() -> None:
    d = driver()
    d.send(Configure(replace(d.core.config, voice="a")))
    assert d.rejects() == []
    speak(d)
    d.send(Configure(replace(d.core.config, voice="b")))
    assert d.rejects() == ["voice_update_after_audio_unsupported"]


def test_a_client_that_wants_text_alone_gets_no_speech_parts() -> None:
    d = driver(modalities=("text",))
    d.yields(Decision(Fence(), 1, Action.RESPONSE), TextDelta(Fence(), "hi"), TurnEnd(Fence()))
    assert not [t for t in d.types() if "audio" in t and t.startswith("response")]
    assert d.core.view()["modalities"] == ["text"]
