"""Turn taking: commits, turns that wait, and what asks for a response, in auto and in turn mode."""

from typing import Any

import pytest

from orchestrator.session.backend import (
    Action,
    Capabilities,
    Decision,
    QueryAsked,
    ResponseOptions,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    TickDone,
    TurnDetection,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.commands import (
    AppendInput,
    AppendText,
    AskQuery,
    Cancel,
    ClearInput,
    Close,
    CommitInput,
    CreateItem,
    CreateResponse,
    Interrupt,
    Reconfigure,
)
from orchestrator.session.effects import BackendAppend, BackendCancel, BackendCommit, BackendTell
from orchestrator.session.events import (
    ErrorEvent,
    InputCommitted,
    ItemDone,
    OverlapDecided,
    ResponseCreated,
    ResponseDone,
    ResponseListen,
    SessionUpdated,
    TranscriptionCompleted,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.limits import SessionLimits
from orchestrator.session.states import State
from orchestrator.session.units import FrameInput, InputUnit, Modality
from orchestrator.wire.errors import EngineFault, InvalidRequest, VigilError
from tests.session.driver import Driver, make_core

HOLDS = Capabilities(1000, optional_input_modalities=("audio", "video"), holds_turn_input=True)
RECORDS = Capabilities(1000, optional_input_modalities=("audio", "video"))
NEEDS_AUDIO = Capabilities(1000, ("audio",), ("video",), holds_turn_input=True, supports_text_only_turn=False)


def driver(capabilities: Capabilities = HOLDS, *, auto: bool = False, **more: Any) -> Driver:
    limits = more.pop("limits", None)
    carry = more.pop("carry", True)
    return Driver(make_core(capabilities, limits, auto_response=auto, **more), auto=carry)


def picture(name: str, data: bytes = b"jpeg") -> AppendInput:
    return AppendInput(name, InputUnit((FrameInput(data, 0),)))


def speech(name: str, ms: float = 200.0, **hints: Any) -> AppendInput:
    return AppendInput(name, InputUnit(pcm=b"\x01" * 8), is_speech=True, duration_ms=ms, **hints)


def silence(name: str) -> AppendInput:
    return AppendInput(name, InputUnit(pcm=b"\0" * 8), duration_ms=200.0)


def submitted(d: Driver) -> list[Any]:
    """What reached the backend: operation ids of units, and the calls of turns."""
    out: list[Any] = []
    for effect in d.done:
        if isinstance(effect, BackendAppend):
            out.append(effect.operation_id)
        elif isinstance(effect, BackendCommit):
            out.append("create" if effect.create_response else "commit")
        elif isinstance(effect, BackendTell) and isinstance(effect.fact, QueryAsked):
            out.append(effect.fact.text)
    return out


def answer(d: Driver, text: str = "yes", *, end: bool = True) -> None:
    fence = d.core.fence
    d.yields(Decision(fence, 1, Action.RESPONSE), TextDelta(fence, text))
    if end:
        d.yields(TurnEnd(fence))


def pending(d: Driver) -> Any:
    return d.core.statistics()["pending_input_bytes"]


# --- turn mode, the session holds the input ----------------------------------------------------------


def test_pictures_wait_and_are_handed_over_in_order_with_the_response_asked_last() -> None:
    d = driver()
    d.send(picture("f1"))
    d.send(picture("f2"))
    assert submitted(d) == []
    assert pending(d) == 8
    d.send(CommitInput(create_response=True))
    assert submitted(d) == ["f1", "f2", "create"]
    assert pending(d) == 0
    kinds = [t for t in d.types() if t in ("input_audio_buffer.committed", "response.created")]
    assert kinds == ["input_audio_buffer.committed", "response.created"]


def test_committed_is_told_only_after_the_prefixes_were_taken() -> None:
    d = driver(carry=False)
    d.send(picture("f1"))
    d.send(picture("f2"))
    d.send(CommitInput(create_response=True))
    d.carry()
    assert d.of(InputCommitted) == []
    d.carry()
    assert len(d.of(InputCommitted)) == 1
    assert isinstance(d.pending[0], BackendCommit)


def test_the_commit_events_follow_the_template() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(CommitInput())
    assert d.types() == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "conversation.item.added",
        "conversation.item.created",
        "input_audio_buffer.committed",
        "conversation.item.done",
    ]
    item = d.of(ItemDone)[0].item
    assert [part.kind for part in item.content] == ["input_audio"]


def test_a_plain_commit_is_retained_and_answered_when_asked() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(CommitInput())
    assert submitted(d) == []
    d.send(CreateResponse(metadata={"k": "v"}))
    assert submitted(d) == ["a", "create"]
    assert d.of(ResponseCreated)[0].metadata == {"k": "v"}


def test_audio_of_one_item_is_one_unit() -> None:
    d = driver()
    for name in "abc":
        d.send(speech(name))
    d.send(CommitInput(create_response=True))
    appends = [e for e in d.done if isinstance(e, BackendAppend)]
    assert [len(e.unit.pcm or b"") for e in appends] == [24]
    assert [a.operation_id for a in appends[0].appends] == ["a", "b", "c"]
    assert pending(d) == 0


def test_a_picture_committed_over_retained_speech_joins_it() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(CommitInput())
    d.send(picture("f"))
    d.send(CommitInput(create_response=True))
    units = [e.unit for e in d.done if isinstance(e, BackendAppend)]
    assert [unit.modality for unit in units] == [Modality.OMNI]


def test_a_retained_picture_goes_ahead_of_speech() -> None:
    d = driver()
    d.send(picture("f"))
    d.send(CommitInput())
    d.send(speech("a"))
    d.send(CommitInput(create_response=True))
    assert submitted(d) == ["f", "a", "create"]


def test_leading_silence_is_skipped_and_said_seldom() -> None:
    d = driver()
    for number in range(5):
        d.send(silence(f"s{number}"))
    assert [e.reason for e in d.of(ResponseListen)] == ["silence_or_noise"]
    assert pending(d) == 0
    assert len(d.answers()) == 5
    d.send(CommitInput(create_response=True))
    assert d.of(InputCommitted)[0].details == {"is_speech": False, "no_response": True, "empty": True}
    assert d.of(ResponseCreated) == []


def test_silence_inside_speech_is_kept() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(silence("s"))
    d.send(CommitInput(create_response=True))
    assert [a.operation_id for e in d.done if isinstance(e, BackendAppend) for a in e.appends] == ["a", "s"]


def test_a_commit_of_nothing_is_refused() -> None:
    d = driver()
    d.send(CommitInput())
    assert d.rejects() == ["input_audio_buffer_empty"]
    d.send(speech("a"))
    d.send(CommitInput())
    d.send(CommitInput())
    assert d.rejects() == ["input_audio_buffer_empty"] * 2


def test_a_very_short_commit_that_wants_an_answer_is_listened_to_only() -> None:
    d = driver()
    d.send(speech("a", 700))
    d.send(CommitInput(create_response=True, duration_ms=700))
    assert d.of(InputCommitted)[0].details == {"no_response": True}
    assert d.of(ResponseCreated) == []
    assert pending(d) == 0


def test_a_refused_unit_keeps_the_rest_and_the_next_try_succeeds() -> None:
    d = driver(carry=False)
    d.send(picture("f1"))
    d.send(picture("f2"))
    d.send(CommitInput(create_response=True, event_id="evt_1"))
    d.carry(EngineFault("no"))
    assert [e.error.code for e in d.of(ErrorEvent)] == ["runtime_append_failed"]
    assert d.rejects() == ["commit_aborted"]
    assert d.dropped() == ["f1"]
    assert d.of(InputCommitted) == []
    assert d.core.state is State.LISTENING
    assert pending(d) == 4
    d.auto = True
    d.send(picture("f1"))
    d.send(CommitInput(create_response=True))
    assert submitted(d)[1:] == ["f2", "f1", "create"]
    assert pending(d) == 0


def test_text_only_turns_where_the_model_has_none() -> None:
    d = driver(NEEDS_AUDIO)
    d.send(AskQuery("hello", "q"))
    d.send(CreateResponse())
    assert d.rejects() == ["text_only_turn_unsupported"]


def test_a_users_message_may_be_answered() -> None:
    d = driver()
    item = Item("item_x", "user", content=(ContentPart("input_text", "hello"),))
    d.send(CreateItem(item))
    d.send(CreateResponse())
    assert submitted(d) == ["hello", "create"]


def test_a_message_id_is_never_taken_twice() -> None:
    d = driver()
    item = Item("item_x", "user", content=(ContentPart("input_text", "hello"),))
    d.send(CreateItem(item))
    d.send(CreateItem(item))
    assert d.rejects() == ["bad_event"]


def test_a_message_that_the_backend_refuses_leaves_no_item() -> None:
    d = driver(carry=False)
    d.send(AskQuery("hello", "item_q"))
    d.carry(InvalidRequest("too long", code="query_too_long"))
    assert d.types() == []
    assert d.core.history.last_item_id is None


def test_words_of_an_item_become_the_query_when_committed() -> None:
    d = driver()
    d.send(AppendText("is there "))
    d.send(AppendText("smoke?"))
    d.send(CommitInput(create_response=True))
    assert submitted(d) == ["is there smoke?", "create"]
    assert [part.text for part in d.of(ItemDone)[0].item.content] == ["is there smoke?"]


# --- turn mode, over a response ----------------------------------------------------------------------


def responding(d: Driver) -> None:
    d.send(speech("first"))
    d.send(CommitInput(create_response=True))
    answer(d, end=False)


def test_a_murmur_over_a_response_is_no_turn() -> None:
    d = driver()
    responding(d)
    d.send(speech("m", 700))
    d.send(CommitInput(create_response=True))
    assert d.of(InputCommitted)[-1].details == {"overlap_ack": True, "no_response": True, "is_speech": False}
    assert pending(d) == 0
    d.yields(TurnEnd(d.core.fence))
    assert len(d.of(ResponseCreated)) == 1


def test_more_than_a_murmur_waits_for_the_end_and_gets_a_response_of_its_own() -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 701))
    d.send(CommitInput(create_response=True))
    details = d.of(InputCommitted)[-1].details
    assert details == {"is_speech": True, "overlap_deferred": True, "response_create_deferred": True}
    assert pending(d) == 8
    d.yields(TurnEnd(d.core.fence))
    assert submitted(d) == ["first", "create", "t", "create"]
    ids = [e.response_id for e in d.of(ResponseCreated)]
    assert len(set(ids)) == 2
    order = [e.type for e in d.events() if e.type in ("response.created", "response.done")]
    assert order == ["response.created", "response.done", "response.created"]
    assert pending(d) == 0


def test_deferred_turns_merge_into_one() -> None:
    d = driver()
    responding(d)
    for name in ("t1", "t2"):
        d.send(speech(name, 800))
        d.send(CommitInput(create_response=name == "t2"))
    d.yields(TurnEnd(d.core.fence))
    assert len(d.of(ResponseCreated)) == 2
    assert submitted(d) == ["first", "create", "t2", "create"]


def test_a_deferred_turn_without_create_is_retained() -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 800))
    d.send(CommitInput())
    d.yields(TurnEnd(d.core.fence))
    assert len(d.of(ResponseCreated)) == 1
    d.send(CreateResponse())
    assert submitted(d)[-2:] == ["t", "create"]


def test_a_deferred_turn_is_not_promoted_by_a_failure_but_kept() -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 800))
    d.send(CommitInput(create_response=True))
    d.yields(TurnEnd(d.core.fence, "failed", "engine_error"))
    assert len(d.of(ResponseCreated)) == 1
    assert pending(d) == 8
    d.send(CreateResponse())
    assert pending(d) == 0


def test_a_cancel_drops_the_deferred_turn_and_keeps_the_open_item() -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 800))
    d.send(CommitInput(create_response=True))
    d.send(speech("open", 800))
    assert pending(d) == 16
    d.send(Cancel())
    assert d.dropped() == ["t"]
    assert pending(d) == 8
    d.send(CommitInput(create_response=True))
    assert submitted(d)[-2:] == ["open", "create"]


def test_the_pending_limit_counts_held_and_deferred_pictures() -> None:
    d = driver(limits=SessionLimits(max_pending_input_bytes=100))
    responding(d)
    for name in ("f1", "f2"):
        d.send(picture(name, b"x" * 40))
    with pytest.raises(VigilError) as refused:
        d.send(picture("f3", b"x" * 40))
    assert refused.value.code == "input_backpressure"
    d.send(CommitInput(create_response=True))
    with pytest.raises(VigilError):
        d.send(picture("f3", b"x" * 40))
    d.yields(TurnEnd(d.core.fence))
    assert submitted(d)[2:] == ["f1", "f2", "create"]
    d.send(picture("f3", b"x" * 40))
    d.send(ClearInput())
    assert pending(d) == 0
    assert d.types()[-1] == "input_audio_buffer.cleared"


def test_a_reserved_turn_is_used_even_if_the_turn_has_advanced() -> None:
    d = driver()
    responding(d)
    reserved = d.core.fence.turn + 1
    d.send(speech("t", 800))
    d.yields(TurnEnd(d.core.fence))
    d.send(CreateItem(Item("item_q", "user", content=(ContentPart("input_text", "and?"),))))
    d.send(CreateResponse())
    answer(d)
    assert d.core.fence.turn > reserved
    d.send(CommitInput(create_response=True))
    last = [e for e in d.done if isinstance(e, BackendCommit)][-1]
    assert last.fence == Fence(0, reserved)
    d.yields(Decision(last.fence, 9, Action.RESPONSE), TextDelta(last.fence, "late"), TurnEnd(last.fence))
    assert d.of(ResponseDone)[-1].text == "late"


@pytest.mark.parametrize("release", [ClearInput(), Cancel()])
def test_clear_and_cancel_release_the_reserved_turn(release: Any) -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 800))
    d.send(release)
    if isinstance(release, ClearInput):
        d.yields(TurnEnd(d.core.fence))
    d.send(speech("n", 800))
    d.send(CommitInput(create_response=True))
    last = [e for e in d.done if isinstance(e, BackendCommit)][-1]
    assert last.fence == d.core.fence


# --- overlap decisions -------------------------------------------------------------------------------


def test_every_overlapping_append_is_decided_and_told() -> None:
    d = driver()
    responding(d)
    d.send(speech("a", 300))
    d.send(silence("s"))
    decided = [(e.action, e.reason, e.buffered, e.deferred) for e in d.of(OverlapDecided)]
    assert decided == [
        ("listen", "policy_listen_only", True, True),
        ("drop", "silence_or_noise", False, False),
    ]
    assert d.of(OverlapDecided)[0].overlap_speech_ms == 300


def test_silent_chunks_never_discard_earlier_speech_of_the_item() -> None:
    d = driver()
    responding(d)
    d.send(speech("a", 800))
    d.send(silence("s"))
    d.send(CommitInput(create_response=True))
    d.yields(TurnEnd(d.core.fence))
    assert submitted(d)[-2:] == ["a", "create"]


def test_a_forced_barge_in_cancels_and_the_append_belongs_to_the_new_epoch() -> None:
    d = driver(RECORDS)
    d.send(speech("first"))
    d.send(CommitInput(create_response=True))
    answer(d, "half", end=False)
    d.send(speech("b", force_barge_in=True))
    assert d.core.fence.epoch == 1
    assert [e.type for e in d.events()][-1] == "rate_limits.updated"
    assert [(e.status, e.reason) for e in d.of(ResponseDone)] == [("cancelled", "barge_in")]
    last = d.done[-1]
    assert isinstance(last, BackendAppend)
    assert last.fence.epoch == 1
    assert isinstance(d.done[-2], BackendCancel)


def test_a_barge_in_that_the_model_cannot_do_is_one_error_and_the_rest_decides() -> None:
    unable = Capabilities(1000, optional_input_modalities=("audio",), supports_barge_in=False)
    d = driver(unable)
    d.send(speech("first"))
    d.send(CommitInput(create_response=True))
    d.send(speech("b", force_barge_in=True))
    assert [e.error.code for e in d.of(ErrorEvent)] == ["barge_in_unsupported"]
    assert d.of(OverlapDecided)[0].reason == "policy_listen_only"
    assert d.core.fence.epoch == 0


def test_auto_mode_streams_over_a_response_without_a_decision() -> None:
    d = driver(RECORDS, auto=True)
    d.send(speech("a"))
    answer(d, end=False)
    d.send(speech("b"))
    assert d.of(OverlapDecided) == []
    assert submitted(d) == ["a", "b"]


# --- where the backend records -----------------------------------------------------------------------


def test_recorded_input_goes_out_at_once_and_is_answered_when_asked() -> None:
    d = driver(RECORDS)
    d.send(picture("f1"))
    d.send(picture("f2"))
    assert submitted(d) == ["f1", "f2"]
    d.send(CreateResponse())
    assert submitted(d) == ["f1", "f2", "create"]


def test_what_was_kept_from_a_recording_backend_goes_before_what_follows() -> None:
    d = driver(RECORDS)
    d.send(speech("first"))
    d.send(CommitInput(create_response=True))
    answer(d, end=False)
    d.send(speech("kept", 800))
    d.yields(TurnEnd(d.core.fence))
    d.send(speech("next"))
    assert submitted(d) == ["first", "create", "kept", "next"]


# --- auto mode ---------------------------------------------------------------------------------------


def test_auto_mode_streams_and_a_commit_only_seals() -> None:
    d = driver(RECORDS, auto=True)
    d.send(speech("a"))
    d.send(CommitInput())
    assert submitted(d) == ["a", "commit"]
    assert d.of(InputCommitted)[0].details == {"is_speech": True}
    assert d.of(ResponseCreated) == []


def test_auto_mode_committed_comes_before_any_output() -> None:
    d = driver(RECORDS, auto=True, carry=False)
    d.send(speech("a"))
    d.carry()
    d.send(CommitInput())
    assert len(d.of(InputCommitted)) == 1


def test_auto_mode_silence_that_was_streamed_is_committed_without_a_listen() -> None:
    d = driver(RECORDS, auto=True)
    d.send(silence("s"))
    d.send(CommitInput())
    assert d.of(InputCommitted)[0].details["no_response"]
    assert d.of(ResponseListen) == []


def test_a_commit_behind_a_failed_append_is_aborted_once() -> None:
    d = driver(RECORDS, auto=True, carry=False)
    d.send(speech("a"))
    d.carry(EngineFault("no"))
    d.send(CommitInput())
    assert d.rejects() == ["engine_error", "commit_aborted"]
    d.auto = True
    d.send(speech("a"))
    d.send(CommitInput())
    assert submitted(d)[-2:] == ["a", "commit"]


# --- detector ----------------------------------------------------------------------------------------

VAD = TurnDetection()


def test_in_turn_mode_the_end_of_speech_commits_and_asks() -> None:
    d = driver(RECORDS, turn_detection=VAD, overlap_policy="barge_in_on_speech")
    d.send(silence("s0"))
    d.yields(SpeechStarted(Fence(), 300))
    d.send(speech("a"))
    d.yields(SpeechStopped(Fence(), 1200), UserTranscript(Fence(), "hi", final=True))
    types = d.types()
    assert types[0] == "input_audio_buffer.speech_started"
    assert types.count("input_audio_buffer.speech_stopped") == 1
    assert submitted(d) == ["s0", "a", "create"]
    said = d.of(TranscriptionCompleted)[0]
    assert said.item_id == d.of(InputCommitted)[0].item_id
    assert said.transcript == "hi"


def test_the_detector_may_commit_without_asking() -> None:
    d = driver(RECORDS, turn_detection=TurnDetection(create_response=False))
    d.send(silence("s0"))
    d.yields(SpeechStarted(Fence(), 0), SpeechStopped(Fence(), 900))
    assert submitted(d) == ["s0", "commit"]


def test_in_auto_mode_the_detector_only_reports_and_interrupts() -> None:
    d = driver(RECORDS, auto=True, turn_detection=VAD, overlap_policy="barge_in_on_speech")
    d.send(silence("s0"))
    answer(d, end=False)
    d.yields(SpeechStarted(Fence(), 300))
    assert [(e.status, e.reason) for e in d.of(ResponseDone)] == [("cancelled", "turn_detected")]
    assert d.of(OverlapDecided)[0].reason == "server_vad_speech_started"
    d.yields(SpeechStopped(Fence(), 900))
    assert submitted(d) == ["s0"]


def test_the_policy_interrupts_on_hinted_speech_once_per_utterance() -> None:
    d = driver(RECORDS, auto=True, turn_detection=VAD, overlap_policy="barge_in_on_speech")
    d.send(silence("s0"))
    d.yields(SpeechStarted(Fence(), 300))
    answer(d, end=False)
    d.send(speech("a"))
    assert d.of(OverlapDecided)[0].reason == "auto_response_continuous"
    assert d.of(ResponseDone) == []


# --- interrupts --------------------------------------------------------------------------------------


def test_an_interrupt_drops_input_and_output() -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 800))
    d.send(Interrupt(barge_in=True))
    assert d.core.fence.epoch == 1
    assert [(e.status, e.reason) for e in d.of(ResponseDone)] == [("cancelled", "barge_in")]
    assert "input_audio_buffer.cleared" in d.types()
    assert pending(d) == 0


def test_an_interrupt_with_nothing_running_still_moves_the_epoch() -> None:
    d = driver()
    d.send(Interrupt(barge_in=False))
    assert d.core.fence.epoch == 1
    assert d.types() == ["input_audio_buffer.cleared"]
    assert isinstance(d.done[-1], BackendCancel)


def test_a_barge_in_where_there_is_none() -> None:
    d = driver(Capabilities(1000, supports_barge_in=False))
    d.send(Interrupt(barge_in=True))
    assert d.rejects() == ["barge_in_unsupported"]
    assert d.core.fence.epoch == 0


def test_a_cancel_drops_a_turn_on_its_way() -> None:
    d = driver(carry=False)
    d.send(picture("f1"))
    d.send(picture("f2"))
    d.send(CommitInput(create_response=True))
    d.send(Cancel())
    assert d.core.fence.epoch == 1
    assert d.core.state is State.LISTENING
    assert d.dropped() == ["f2"]
    assert d.rejects() == ["stale_fence"]
    d.carry()
    d.carry()
    assert d.of(ResponseCreated) == []
    assert pending(d) == 0


def test_a_second_create_while_one_is_on_its_way_does_nothing() -> None:
    d = driver(carry=False)
    d.send(picture("f1"))
    d.send(CommitInput())
    d.send(CreateResponse())
    d.send(CreateResponse())
    assert d.rejects() == []
    d.auto = True
    d.carry()
    assert len(d.of(ResponseCreated)) == 1


def test_closing_releases_everything_that_is_held() -> None:
    d = driver()
    responding(d)
    d.send(speech("t", 800))
    d.send(CommitInput(create_response=True))
    d.send(speech("open", 800))
    d.send(Close())
    assert pending(d) == 0
    assert sorted(d.dropped()) == ["open", "t"]


# --- messages with pictures, responses with settings of their own ---


def message(name: str, *pictures: AppendInput, text: str = "what is it?") -> CreateItem:
    parts = [ContentPart("input_text", text)] if text else []
    content = (*parts, *[ContentPart("input_image")] * len(pictures))
    return CreateItem(Item(name, "user", content=content), None, pictures)


@pytest.mark.parametrize("capabilities", [HOLDS, RECORDS])
def test_pictures_of_a_message_come_before_its_answer(capabilities: Capabilities) -> None:
    d = driver(capabilities)
    d.send(message("item_1", picture("p1"), picture("p2")))
    d.send(CreateResponse())
    assert submitted(d) == ["what is it?", "p1", "p2", "create"]
    assert pending(d) == 0


def test_a_picture_alone_may_be_answered() -> None:
    d = driver(RECORDS)
    d.send(message("item_1", picture("p1"), text=""))
    assert [part.kind for part in d.of(ItemDone)[0].item.content] == ["input_image"]
    d.send(CreateResponse())
    assert submitted(d) == ["p1", "create"]


def test_a_refused_message_keeps_no_picture() -> None:
    d = driver(RECORDS, carry=False)
    d.send(message("item_1", picture("p1")))
    assert pending(d) == 4
    d.carry(InvalidRequest("too long", code="query_too_long"))
    assert pending(d) == 0
    assert submitted(d) == ["what is it?"]
    d.auto = True
    d.send(message("item_1", picture("p1")))
    d.send(message("item_1", picture("p2")))
    assert d.rejects() == ["query_too_long", "bad_event"]
    assert pending(d) == 0


@pytest.mark.parametrize("capabilities", [HOLDS, RECORDS])
def test_a_message_that_the_end_overtakes_keeps_no_picture(capabilities: Capabilities) -> None:
    """Race: the session is closed while the backend is still taking the message's words."""
    d = driver(capabilities, carry=False)
    d.send(message("item_1", picture("p1")))
    d.send(Close())
    while d.pending:
        d.carry()
    assert pending(d) == 0
    assert submitted(d) == ["what is it?"]


def test_only_so_many_pictures_wait_for_an_answer() -> None:
    d = driver(RECORDS)
    for number in range(4):
        d.send(message(f"item_{number}", picture(f"a{number}"), picture(f"b{number}")))
    d.send(message("item_9", picture("one_more")))
    assert d.rejects() == ["input_backpressure"]
    answered = TickDone(Fence(), 1, ("a0", "b0"), {"tick": 1})
    d.yields(answered)
    d.send(message("item_10", picture("now")))
    assert d.rejects() == ["input_backpressure"]
    assert pending(d) == 0


def test_pictures_are_charged_all_or_none() -> None:
    d = driver(limits=SessionLimits(max_pending_input_bytes=50))
    with pytest.raises(VigilError):
        d.send(message("item_1", picture("p1", b"x" * 30), picture("p2", b"x" * 30)))
    assert pending(d) == 0


def test_settings_of_one_response_are_told_with_its_fence() -> None:
    able = Capabilities(1000, optional_input_modalities=("video",), response_options=True)
    d = driver(able)
    d.send(picture("f"))
    options = ResponseOptions(instructions="brief")
    d.send(CreateResponse(options=options))
    told, commit = d.done[-2:]
    assert told == BackendTell(options, d.core.fence)
    assert isinstance(commit, BackendCommit)
    assert commit.fence == d.core.fence


def test_settings_of_one_response_where_there_are_none() -> None:
    d = driver(RECORDS)
    d.send(picture("f"))
    d.send(CreateResponse(options=ResponseOptions(temperature=0.1)))
    assert d.rejects() == ["unsupported_native_response_options"]
    assert d.of(ResponseCreated) == []


def test_modalities_of_one_response() -> None:
    voice = Capabilities(1000, optional_input_modalities=("video",), output_modalities=("text", "audio"))
    d = driver(voice)
    d.send(picture("f"))
    d.send(CreateResponse(modalities=("text",)))
    assert d.of(ResponseCreated)[0].modalities == ("text",)


# --- updates ---


def test_an_update_is_applied_to_the_configuration_as_it_then_is() -> None:
    d = driver(RECORDS)
    d.send(Reconfigure({"instructions": "a", "extra_body": {"k": 1}}))
    d.send(Reconfigure({"temperature": 0.5}))
    assert (d.core.config.instructions, d.core.config.temperature) == ("a", 0.5)
    assert [type(e).__name__ for e in d.of(SessionUpdated)] == ["SessionUpdated"] * 2
    assert d.of(SessionUpdated)[-1].session["temperature"] == 0.5


def test_a_refused_update_changes_nothing_and_names_its_event() -> None:
    d = driver(RECORDS)
    before = d.core.config
    d.send(Reconfigure({"instructions": "a", "turn_detection": {"type": "nope"}}, event_id="evt_7"))
    assert d.rejects() == ["unsupported_turn_detection"]
    assert d.core.config == before
    assert d.of(SessionUpdated) == []


def test_an_update_behind_a_failed_append_is_aborted() -> None:
    d = driver(RECORDS, auto=True, carry=False)
    d.send(speech("a"))
    d.carry(EngineFault("no"))
    d.send(Reconfigure({"instructions": "a"}))
    assert d.rejects()[-1] == "session_update_aborted"
