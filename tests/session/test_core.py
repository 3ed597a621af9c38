"""The session core, one rule a test: input, ticks, configuration, and the end."""

import pytest

from memory.facts import KINDS
from orchestrator.session import facts
from orchestrator.session.backend import (
    Capabilities,
    Closed,
    Delegation,
    Failed,
    Notice,
    SessionConfig,
    TickDone,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.commands import (
    AskQuery,
    Cancel,
    ClearQuery,
    Close,
    Configure,
)
from orchestrator.session.effects import (
    BackendAppend,
    BackendClose,
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
    SessionClosed,
    SessionExpired,
    SessionUpdated,
    TickEvent,
)
from orchestrator.session.limits import SessionLimits
from orchestrator.session.states import State
from orchestrator.session.told import QueryAsked
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, VigilError
from tests.session.core_parts import F0, UNIT, append, code_of, speaking
from tests.session.driver import Driver, make_core


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


# --- ticks, notices, failures ---


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


# --- configuration and close ---


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
