"""Every (state, trigger) pair is either a move, a typed refusal, or impossible by construction."""

import pytest

from orchestrator.session.states import MOVES, REFUSALS, State, Trigger, move
from orchestrator.wire.errors import ServerFault, VigilError

IMPOSSIBLE = {
    (State.IDLE, Trigger.DONE),
    (State.LISTENING, Trigger.DONE),
    (State.IDLE, Trigger.GONE),
    (State.LISTENING, Trigger.GONE),
    (State.RESPONDING, Trigger.GONE),
    (State.RESPONDING, Trigger.VISIBLE),
    (State.CLOSED, Trigger.GONE),
    *((state, t) for state in (State.CLOSING, State.CLOSED) for t in (Trigger.VISIBLE, Trigger.DONE)),
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("trigger", Trigger)
def test_every_pair_is_decided_once(state: State, trigger: Trigger) -> None:
    pair = (state, trigger)
    assert [pair in MOVES, pair in REFUSALS, pair in IMPOSSIBLE].count(True) == 1
    if pair in MOVES:
        assert move(state, trigger) is MOVES[pair]
    elif pair in REFUSALS:
        kind, code, _ = REFUSALS[pair]
        with pytest.raises(kind) as refused:
            move(state, trigger)
        assert refused.value.code == code
    else:
        with pytest.raises(ServerFault):
            move(state, trigger)


def test_a_closed_session_never_reopens() -> None:
    reachable = {State.CLOSING}
    for (state, _), target in MOVES.items():
        if state in (State.CLOSING, State.CLOSED):
            reachable.add(target)
    assert reachable == {State.CLOSING, State.CLOSED}


def test_refusals_are_client_errors() -> None:
    for kind, _, message in REFUSALS.values():
        assert issubclass(kind, VigilError)
        assert kind.http_status < 500
        assert message
