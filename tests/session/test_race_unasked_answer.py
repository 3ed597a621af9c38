"""A turn is on its way to the model, unit by unit, when the model begins an answer nobody asked for.

The unasked answer ends, as any does that a later turn follows; the one that was asked for begins after it.
Each of the two begins and ends once.
"""

from __future__ import annotations

from orchestrator.session.backend import Action, Capabilities, Decision, TextDelta
from orchestrator.session.commands import AppendInput, Close, CommitInput
from orchestrator.session.events import ResponseCreated, ResponseDone
from orchestrator.session.fence import Fence
from orchestrator.session.units import FrameInput, InputUnit
from tests.session.driver import Driver, make_core

CAPABILITIES = Capabilities(chunk_period_ms=1000, optional_input_modalities=("video",), holds_turn_input=True)


def test_the_unasked_answer_makes_way_for_the_one_that_was_asked_for() -> None:
    d = Driver(make_core(CAPABILITIES, auto_response=False), auto=False)
    d.send(AppendInput(operation_id="op", unit=InputUnit((FrameInput(b"jpeg", 0),))))
    d.send(CommitInput(create_response=True))
    d.yields(Decision(Fence(0, 0), 0, Action.RESPONSE), TextDelta(Fence(0, 0), "Unasked."))
    while d.pending:
        d.carry()
    d.send(Close("client_close"))
    while d.pending:
        d.carry()
    begun = [event.response_id for event in d.of(ResponseCreated)]
    ended = [event.response_id for event in d.of(ResponseDone)]
    assert len(begun) == 2
    assert ended == begun
