"""The session core, one rule a test: what goes in, which effects come out and in which order."""

import pytest

from memory.facts import KINDS
from orchestrator.session import facts
from orchestrator.session.backend import (
    Action,
    Capabilities,
    Closed,
    Decision,
    Delegation,
    Failed,
    Heard,
    Notice,
    QueryAsked,
    SessionConfig,
    TextDelta,
    TickDone,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.commands import (
    AppendInput,
    AskQuery,
    Cancel,
    ClearQuery,
    Close,
    CommitInput,
    Configure,
    CreateResponse,
)
from orchestrator.session.effects import (
    BackendAppend,
    BackendCancel,
    BackendClose,
    BackendCommit,
    BackendTell,
    BackendUpdate,
    Carried,
    Reject,
)
from orchestrator.session.events import (
    DelegationEvent,
    ErrorEvent,
    ResponseCreated,
    ResponseDone,
    ResponseListen,
    SessionClosed,
    SessionExpired,
    SessionUpdated,
    TickEvent,
)
from orchestrator.session.fence import Fence
from orchestrator.session.limits import SessionLimits
from orchestrator.session.states import State
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, VigilError
from tests.session.driver import Driver, make_core

UNIT = InputUnit((FrameInput(b"x" * 40, 0),))
F0 = Fence(0, 0)


def append(operation_id: str, unit: InputUnit = UNIT) -> AppendInput:
    return AppendInput(operation_id, unit)


def speaking(text: str = "hello", fence: Fence = F0) -> tuple[Decision, TextDelta]:
    return Decision(fence, 1, Action.RESPONSE, 0.9), TextDelta(fence, text)


def code_of(refused: pytest.ExceptionInfo[VigilError]) -> str:
    return refused.value.code


# --- input -------------------------------------------------------------------------------------------


def test_append_is_submitted_with_the_fence_then_completed() -> None:
    d = Driver()
    d.send(append("a"))
    assert d.done == [BackendAppend(UNIT, F0, (append("a"),), command=append("a"))]
    assert d.completed() == [append("a")]
    assert d.core.state is State.LISTENING


def test_bytes_are_held_until_the_backend_took_them() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    assert d.core.statistics()["pending_input_bytes"] == 40
    d.carry()
    assert d.core.statistics()["pending_input_bytes"] == 0


def test_a_refused_append_gives_its_bytes_back_and_may_be_sent_again() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    d.carry(InvalidRequest("broken", code="bad_frame"))
    assert d.rejects() == ["bad_frame"]
    assert d.core.statistics()["pending_input_bytes"] == 0
    d.send(append("a"))
    assert len(d.pending) == 1


def test_the_same_operation_is_not_taken_twice() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    assert not d.core.admit(append("a"))  # in flight
    d.carry()
    assert not d.core.admit(append("a"))  # completed
    assert d.core.statistics()["pending_input_bytes"] == 0


def test_input_over_the_limit_is_refused_and_not_retained() -> None:
    core = make_core(limits=SessionLimits(max_pending_input_bytes=100))
    d = Driver(core, auto=False)
    d.send(append("a"))
    d.send(append("b"))
    with pytest.raises(VigilError) as refused:
        d.send(append("c"))
    assert code_of(refused) == "input_backpressure"
    assert core.statistics()["pending_input_bytes"] == 80
    d.carry()
    d.send(append("c"))
    d.carry()
    d.carry()
    assert core.statistics()["pending_input_bytes"] == 0


@pytest.mark.parametrize(
    ("required", "optional", "unit", "code"),
    [
        ((), ("video",), InputUnit(), "bad_event"),
        ((), ("video",), InputUnit(pcm=b"ab"), "invalid_input_modality"),
        (("audio",), ("video",), UNIT, "invalid_input_modality"),
        (("audio",), (), InputUnit(UNIT.frames, b"ab"), "invalid_input_modality"),
        ((), ("video",), InputUnit(UNIT.frames * 3), "invalid_video_frames"),
    ],
)
def test_appends_are_checked_against_the_capabilities(
    required: tuple[str, ...], optional: tuple[str, ...], unit: InputUnit, code: str
) -> None:
    capabilities = Capabilities(1000, required, optional)
    core = make_core(capabilities)
    with pytest.raises(InvalidRequest) as refused:
        core.admit(append("a", unit))
    assert code_of(refused) == code


def test_a_query_becomes_a_user_item_whose_id_is_its_operation() -> None:
    d = Driver()
    d.send(AskQuery("is there smoke?", "item_1"))
    assert d.done == [
        BackendTell(
            QueryAsked("is there smoke?", "item_1"), F0, command=AskQuery("is there smoke?", "item_1")
        )
    ]
    assert d.types() == ["conversation.item.added", "conversation.item.created", "conversation.item.done"]
    assert d.core.state is State.LISTENING


def test_an_empty_query_is_refused_at_the_door() -> None:
    with pytest.raises(InvalidRequest) as refused:
        Driver().send(AskQuery("  ", "q"))
    assert code_of(refused) == "bad_event"


def test_clearing_tells_the_backend_and_keeps_the_state() -> None:
    d = Driver()
    d.send(ClearQuery("item_1"))
    assert isinstance(d.done[0], BackendTell)
    assert d.core.state is State.IDLE


# --- responses ---------------------------------------------------------------------------------------


def test_a_response_is_created_lazily_and_ends_once() -> None:
    d = Driver()
    d.send(append("a"))
    assert d.types() == []
    d.yields(*speaking("hel"), TextDelta(F0, "lo"), TurnEnd(F0), TurnEnd(F0))
    assert d.types().count("response.created") == 1
    assert d.types().count("response.done") == 1
    assert d.of(ResponseDone)[0].text == "hello"
    assert d.core.state is State.LISTENING
    assert d.core.fence == Fence(0, 1)


def test_heard_text_is_what_was_emitted_and_carries_the_responses_fence() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("hello"), TurnEnd(F0))
    response_id = d.of(ResponseCreated)[0].response_id
    told = [e for e in d.done if isinstance(e, BackendTell)]
    assert told == [BackendTell(Heard(response_id, "hello", True), F0)]


def test_a_run_of_silences_is_told_once_and_then_seldom() -> None:
    d = Driver()
    d.send(append("a"))
    for second in range(25):
        d.now = float(second)
        d.yields(TickStarted(F0, second, ()), Decision(F0, second, Action.SILENCE, 0.1, "model"))
    listens = d.of(ResponseListen)
    assert [(e.reason, e.model_listen, e.response_id) for e in listens] == [("model_listen", True, None)] * 3
    assert set(d.types()) == {"response.listen"}


def test_a_silence_that_is_not_the_models_says_so() -> None:
    d = Driver()
    d.yields(Decision(F0, 1, Action.SILENCE, reason="gated"))
    assert [(e.reason, e.model_listen) for e in d.of(ResponseListen)] == [("gated", False)]


def test_delegation_without_a_note_opens_no_response() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(Decision(F0, 1, Action.DELEGATE), TurnEnd(F0))
    assert d.types() == []
    d.yields(Decision(F0, 2, Action.DELEGATE), TextDelta(F0, "let me check"), TurnEnd(F0))
    assert d.of(ResponseDone)[0].text == "let me check"


def test_late_text_of_an_ended_turn_opens_nothing() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking(), TurnEnd(F0), TextDelta(F0, "ghost"))
    assert d.types().count("response.created") == 1
    assert d.core.stale_outputs == 1


def test_a_second_tick_of_the_same_fence_may_speak() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("one"), TurnEnd(F0), *speaking("two"), TurnEnd(F0))
    assert [done.text for done in d.of(ResponseDone)] == ["one", "two"]
    ids = [created.response_id for created in d.of(ResponseCreated)]
    assert ids == ["resp-duplex-1-0-00000000", "resp-duplex-1-0-00000001"]


def test_output_of_a_later_turn_first_ends_the_active_response() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("one"), *speaking("two", Fence(0, 1)))
    kinds = [t for t in d.types() if t in ("response.created", "response.done")]
    assert kinds == ["response.created", "response.done", "response.created"]


def test_incomplete_and_failed_turns() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("par"), TurnEnd(F0, "incomplete", "engine_broken"))
    d.yields(*speaking("bad"), TurnEnd(F0, "failed", "engine_error"))
    assert [(e.status, e.reason) for e in d.of(ResponseDone)] == [
        ("incomplete", "engine_broken"),
        ("failed", "engine_error"),
    ]
    heard = [e.fact for e in d.done if isinstance(e, BackendTell)]
    assert [(h.text, h.complete) for h in heard if isinstance(h, Heard)] == [("par", False), ("", False)]


def test_create_announces_the_response_before_the_backend_is_asked() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    d.carry()
    effects = d.send(CreateResponse())
    assert d.types()[-4:][0] == "response.created"
    assert effects[-1] == BackendCommit(Fence(0, 1), True, command=CreateResponse())


def test_create_with_nothing_to_answer_is_refused() -> None:
    d = Driver()
    d.send(CreateResponse())
    assert d.rejects() == ["response_create_without_input"]


def test_create_while_a_response_is_active_is_refused_and_harms_nothing() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking())
    d.send(CreateResponse(event_id="evt_9"))
    refused = next(e for e in d.effects if isinstance(e, Reject))
    assert (refused.error.code, refused.error.event_id) == ("response_already_active", "evt_9")
    d.yields(TurnEnd(F0))
    assert d.of(ResponseDone)[0].status == "completed"


def test_asked_for_words_but_the_model_listens() -> None:
    d = Driver()
    d.send(append("a"))
    d.send(CreateResponse())
    d.yields(Decision(F0, 1, Action.SILENCE, reason="model"))  # a tick that was in flight before
    assert d.of(ResponseListen) == []
    d.yields(Decision(Fence(0, 1), 2, Action.SILENCE, reason="model"))
    listen = d.of(ResponseListen)[0]
    assert listen.response_id == d.of(ResponseCreated)[0].response_id
    assert d.types().count("response.done") == 1
    assert d.core.state is State.LISTENING


def test_a_refused_commit_fails_the_announced_response() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    d.carry()
    d.send(CreateResponse())
    d.carry(EngineUnavailable("no engine"))
    assert d.of(ResponseDone)[0].reason == "engine_unavailable"
    assert d.rejects() == ["engine_unavailable"]


def test_at_most_four_commits_wait() -> None:
    core = Driver().core
    for _ in range(4):
        assert core.admit(CommitInput())
    with pytest.raises(VigilError) as refused:
        core.admit(CommitInput())
    assert code_of(refused) == "input_backpressure"
    core.handle(0.0, CommitInput())
    assert core.admit(CommitInput())


# --- cancel ------------------------------------------------------------------------------------------


def test_cancel_closes_the_ledger_then_bumps_the_epoch_then_asks_the_backend() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    d.carry()
    d.yields(*speaking("half"))
    d.send(Cancel())
    assert d.facts() == ["response_started", "response_ended", "epoch_begun"]
    assert d.core.fence.epoch == 1
    assert [type(e) for e in d.pending] == [BackendTell, BackendCancel]
    assert d.pending[1] == BackendCancel(Fence(0, 0), Fence(1, 0), command=Cancel())
    assert d.of(ResponseDone) == []  # terminals follow the abort
    d.carry()
    d.carry()
    assert [(e.status, e.reason, e.text) for e in d.of(ResponseDone)] == [
        ("cancelled", "client_cancelled", "half")
    ]
    assert d.completed()[-1] == Cancel()


def test_nothing_of_an_old_epoch_is_emitted_after_cancel() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("half"))
    d.send(Cancel())
    count = len(d.events())
    d.yields(TextDelta(F0, "ghost"), *speaking("ghost"), TurnEnd(F0))
    assert len(d.events()) == count
    assert d.core.stale_outputs == 4


def test_output_of_the_new_epoch_waits_for_the_old_terminals() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    d.carry()
    d.yields(*speaking("half"))
    d.send(Cancel())
    d.yields(*speaking("new", Fence(1, 0)))
    kinds = [t for t in d.types() if t in ("response.created", "response.done")]
    assert kinds == ["response.created", "response.done", "response.created"]


def test_a_failed_abort_is_told_but_the_cancel_stands() -> None:
    d = Driver(auto=False)
    d.send(append("a"))
    d.carry()
    d.yields(*speaking("half"))
    d.send(Cancel())
    d.carry()
    d.carry(EngineUnavailable("late", code="timeout"))
    assert d.of(ResponseDone)[0].status == "cancelled"
    assert d.rejects() == ["runtime_abort_failed"]


@pytest.mark.parametrize(
    ("response_id", "code"),
    [(None, "response_not_active"), ("resp-duplex-1-0-00000000", "response_not_active"), ("unknown", None)],
)
def test_cancel_with_nothing_active(response_id: str | None, code: str | None) -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking(), TurnEnd(F0))
    epoch = d.core.fence.epoch
    d.send(Cancel(response_id))
    assert d.rejects() == ([code] if code else [])
    assert d.core.fence.epoch == epoch


def test_cancel_of_another_response_than_the_active_one() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking())
    d.send(Cancel("resp-duplex-1-0-0000007b"))
    assert d.rejects() == ["response_not_active"]
    d.yields(TurnEnd(F0))
    assert d.of(ResponseDone)[0].status == "completed"


def test_create_cancel_create_leaves_exactly_one_response() -> None:
    d = Driver()
    d.send(append("a"))
    for command in (CreateResponse(), Cancel(), CreateResponse()):
        d.send(command)
    fence = d.core.fence
    d.yields(*speaking("orphan", Fence(0, 1)), TurnEnd(Fence(0, 1)))
    d.yields(*speaking("kept", fence), TurnEnd(fence))
    assert [(e.status, e.text) for e in d.of(ResponseDone)] == [("cancelled", ""), ("completed", "kept")]


# --- ticks, notices, failures ------------------------------------------------------------------------


def test_a_tick_answers_its_operations_with_its_response() -> None:
    d = Driver()
    d.send(append("a"))
    d.send(append("b"))
    done = TickDone(F0, 1, ("a", "b"), {"tick": 1, "action": "response", "text": "hi", "question": None})
    d.yields(TickStarted(F0, 1, ("a", "b")), *speaking("hi"), TurnEnd(F0), done)
    outcomes = [answer.outcome for answer in d.answers()]
    assert [(o.operation_id, o.action, o.text) for o in outcomes] == [
        ("a", "response", "hi"),
        ("b", "response", "hi"),
    ]
    assert outcomes[0].response_id == d.of(ResponseCreated)[0].response_id
    assert d.core.outcome("a") == outcomes[0]
    assert d.of(TickEvent)[0].record["response_id"] == outcomes[0].response_id


def test_a_silent_tick_after_a_spoken_one_has_no_response_id() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(TickStarted(F0, 1, ()), *speaking("hi"), TurnEnd(F0), TickDone(F0, 1, (), {"tick": 1}))
    d.yields(TickStarted(F0, 2, ("a",)), TickDone(F0, 2, ("a",), {"tick": 2}))
    assert d.answers()[0].outcome.response_id is None


def test_a_failed_tick_is_an_outcome_with_a_code() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(TickDone(F0, 1, ("a",), {"tick": 1}, "engine_timeout"))
    assert d.answers()[0].outcome.error_code == "engine_timeout"


def test_a_cancelled_tick_still_answers_its_operations_but_shows_nothing() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("half"))
    d.send(Cancel())
    d.yields(TickDone(F0, 1, ("a",), {"tick": 1}, "cancelled"))
    assert d.answers()[0].outcome.error_code == "cancelled"
    assert d.of(TickEvent) == []


def test_a_delegation_outlives_its_epoch() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("half"))
    d.send(Cancel())
    d.yields(Delegation(F0, "dlg_1", "completed", "how many?", "three"))
    assert d.of(DelegationEvent)[0].text == "three"


def test_notices_pass() -> None:
    d = Driver()
    d.yields(Notice("engine_lost", "the engine is gone; retrying"))
    assert d.types() == ["vigil.notice"]


def test_a_failure_is_one_error_and_the_session_goes_on() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(Failed(F0, "engine_error", "no", operations=("a",)))
    assert [e.error.code for e in d.of(ErrorEvent)] == ["engine_error"]
    assert d.answers()[0].outcome.error_code == "engine_error"
    assert d.core.state is State.LISTENING


def test_a_fatal_failure_tells_error_then_terminal_then_the_end() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("half"), Failed(F0, "engine_dead", "gone", fatal=True))
    tail = [t for t in d.types() if t in ("error", "response.done", "session.expired", "session.closed")]
    assert tail == ["error", "response.done", "session.expired"]
    assert d.of(ResponseDone)[0].status == "failed"
    assert d.core.state is State.CLOSED


# --- configuration and close -------------------------------------------------------------------------


def test_configure_applies_only_what_the_backend_took() -> None:
    d = Driver(auto=False)
    d.send(Configure(SessionConfig("m", persona="silent")))
    assert d.core.config.persona is None
    d.carry(InvalidRequest("no such persona", code="unknown_persona"))
    assert d.core.config.persona is None
    d.send(Configure(SessionConfig("m", persona="silent")))
    d.carry()
    assert d.core.config.persona == "silent"
    assert len(d.of(SessionUpdated)) == 1


def test_an_update_names_the_tick_at_which_it_takes_hold() -> None:
    d = Driver(auto=False)
    for planned in (48, None):
        d.send(Configure(SessionConfig("m", persona="silent")))
        effect = d.pending.popleft()
        assert isinstance(effect, BackendUpdate)
        d.absorb(d.core.handle(d.now, Carried(effect, planned_tick=planned)))
        assert d.of(SessionUpdated)[-1].planned_tick == planned


def test_the_model_cannot_change() -> None:
    d = Driver()
    d.send(Configure(SessionConfig("other")))
    assert d.rejects() == ["model_update_unsupported"]


def test_close_ends_the_response_and_is_the_last_event() -> None:
    d = Driver()
    d.send(append("a"))
    d.yields(*speaking("half"))
    d.send(Close())
    assert [t for t in d.types() if t.endswith(("done", "closed"))][-2:] == [
        "response.done",
        "session.closed",
    ]
    assert d.types()[-1] == "session.closed"
    assert d.facts()[-1] == "session_ended"
    assert d.core.state is State.CLOSED


def test_the_end_is_told_only_after_the_backend_closed() -> None:
    d = Driver(auto=False)
    d.send(Close())
    assert d.of(SessionClosed) == []
    assert d.core.state is State.CLOSING
    d.carry(EngineUnavailable("slow", code="timeout"))
    assert [e.reason for e in d.of(SessionClosed)] == ["client_close"]


def test_a_repeated_close_does_nothing() -> None:
    d = Driver(auto=False)
    d.send(Close())
    assert not d.core.admit(Close())
    assert sum(isinstance(e, BackendClose) for e in d.pending) == 1


def test_expiry_has_its_own_event() -> None:
    d = Driver()
    d.send(Close("idle_ttl_expired"))
    assert [e.reason for e in d.of(SessionExpired)] == ["idle_ttl_expired"]


def test_a_backend_that_closes_itself_ends_the_session() -> None:
    d = Driver()
    d.yields(Closed("engine_gone"))
    assert [e.reason for e in d.of(SessionClosed)] == ["engine_gone"]


def test_commands_queued_behind_a_close_are_refused_quietly_and_release_their_bytes() -> None:
    d = Driver(auto=False)
    assert d.core.admit(append("late"))
    d.send(Close())
    effects = d.core.handle(0.0, append("late"))
    refused = next(e for e in effects if isinstance(e, Reject))
    assert (refused.error.code, refused.told) == ("session_closed", None)
    assert d.core.statistics()["pending_input_bytes"] == 0


def test_nothing_is_admitted_or_emitted_after_the_end() -> None:
    d = Driver()
    d.send(Close())
    with pytest.raises(VigilError) as refused:
        d.send(append("a"))
    assert code_of(refused) == "session_closed"
    count = len(d.effects)
    d.yields(*speaking("ghost"), Notice("x", "y"), TickDone(F0, 1, (), {}))
    assert len(d.effects) == count


def test_fact_kinds_are_not_memorys() -> None:
    kinds = {cls.kind for cls in facts.SessionFact.__subclasses__()}
    assert kinds
    assert not kinds & KINDS
