"""Turn taking over a response: murmurs, turns that wait, and every overlap decision."""

from typing import Any

import pytest

from orchestrator.session.backend import (
    Action,
    Capabilities,
    Decision,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.commands import (
    Cancel,
    ClearInput,
    CommitInput,
    CreateItem,
    CreateResponse,
)
from orchestrator.session.effects import BackendAppend, BackendCancel, BackendCommit
from orchestrator.session.events import (
    ErrorEvent,
    InputCommitted,
    OverlapDecided,
    ResponseCreated,
    ResponseDone,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.limits import SessionLimits
from orchestrator.wire.errors import VigilError
from tests.session.turn_parts import (
    RECORDS,
    answer,
    driver,
    pending,
    picture,
    responding,
    silence,
    speech,
    submitted,
)


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


# --- overlap decisions ---


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
