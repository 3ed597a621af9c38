"""The session core, one rule a test: cancels, and what of an old epoch may still be seen."""

import pytest

from orchestrator.session.backend import (
    TextDelta,
    TurnEnd,
)
from orchestrator.session.commands import (
    Cancel,
    CreateResponse,
)
from orchestrator.session.effects import (
    BackendCancel,
    BackendTell,
)
from orchestrator.session.events import (
    ResponseCreated,
    ResponseDone,
)
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import EngineUnavailable
from tests.session.core_parts import F0, append, speaking
from tests.session.driver import Driver


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
    assert d.rejects() == [] and len(d.of(ResponseCreated)) == 2
    fence = d.core.fence
    d.yields(*speaking("orphan", Fence(0, 1)), TurnEnd(Fence(0, 1)))
    d.yields(*speaking("kept", fence), TurnEnd(fence))
    assert [(e.status, e.text) for e in d.of(ResponseDone)] == [("cancelled", ""), ("completed", "kept")]
