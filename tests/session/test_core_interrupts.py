"""What ends a turn early: interrupts, cancels on the way, the end of the session."""

from orchestrator.session.backend import (
    Capabilities,
)
from orchestrator.session.commands import (
    Cancel,
    Close,
    CommitInput,
    CreateResponse,
    Interrupt,
)
from orchestrator.session.effects import BackendCancel, BackendClear
from orchestrator.session.events import (
    ResponseCreated,
    ResponseDone,
)
from orchestrator.session.states import State
from tests.session.turn_parts import driver, pending, picture, responding, speech


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
    assert [type(effect) for effect in d.done[-2:]] == [BackendCancel, BackendClear]


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
