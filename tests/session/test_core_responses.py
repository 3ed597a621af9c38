"""The session core, one rule a test: responses from their announcement to their end."""

import pytest

from orchestrator.session.backend import (
    Action,
    Decision,
    TextDelta,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.commands import (
    CommitInput,
    CreateResponse,
)
from orchestrator.session.effects import (
    BackendCommit,
    BackendTell,
    Reject,
)
from orchestrator.session.events import (
    ResponseCreated,
    ResponseDone,
    ResponseListen,
)
from orchestrator.session.fence import Fence
from orchestrator.session.states import State
from orchestrator.session.told import Heard
from orchestrator.wire.errors import EngineUnavailable, VigilError
from tests.session.core_parts import F0, append, code_of, speaking
from tests.session.driver import Driver


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
