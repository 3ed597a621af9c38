"""The states of a session and the one table of legal moves between them.

::

    IDLE ---input---> LISTENING <--input-+
      |                |   ^  |          |
      |        visible,|   |  +----------+
      |        create  v   | done, cancel (epoch + 1)
      +--visible-> RESPONDING --input--> RESPONDING      (the duplex edge)

    any --close--> CLOSING --gone--> CLOSED

Barge-in is an epoch change, never a state to rest in.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from orchestrator.wire.errors import Conflict, InvalidRequest, ServerFault, VigilError


class State(StrEnum):
    IDLE = "idle"
    LISTENING = "listening"
    RESPONDING = "responding"
    CLOSING = "closing"
    CLOSED = "closed"

    @property
    def is_open(self) -> bool:
        return self not in (State.CLOSING, State.CLOSED)


class Trigger(StrEnum):
    """What moves a session: ``input`` (append, query), ``create`` (words wanted), ``visible`` (first
    visible output), ``done`` (response over), ``cancel``, ``close``, ``gone`` (backend closed)."""

    INPUT = "input"
    CREATE = "create"
    VISIBLE = "visible"
    DONE = "done"
    CANCEL = "cancel"
    CLOSE = "close"
    GONE = "gone"


MOVES: Mapping[tuple[State, Trigger], State] = {
    (State.IDLE, Trigger.INPUT): State.LISTENING,
    (State.IDLE, Trigger.VISIBLE): State.RESPONDING,
    (State.LISTENING, Trigger.INPUT): State.LISTENING,
    (State.LISTENING, Trigger.CREATE): State.RESPONDING,
    (State.LISTENING, Trigger.VISIBLE): State.RESPONDING,
    (State.RESPONDING, Trigger.INPUT): State.RESPONDING,
    (State.RESPONDING, Trigger.DONE): State.LISTENING,
    (State.RESPONDING, Trigger.CANCEL): State.LISTENING,
    (State.IDLE, Trigger.CLOSE): State.CLOSING,
    (State.LISTENING, Trigger.CLOSE): State.CLOSING,
    (State.RESPONDING, Trigger.CLOSE): State.CLOSING,
    (State.CLOSING, Trigger.CLOSE): State.CLOSING,
    (State.CLOSED, Trigger.CLOSE): State.CLOSED,
    (State.CLOSING, Trigger.GONE): State.CLOSED,
}

_CLOSED = "the session is closed; open a new one"
REFUSALS: Mapping[tuple[State, Trigger], tuple[type[VigilError], str, str]] = {
    (State.IDLE, Trigger.CREATE): (
        InvalidRequest,
        "response_create_without_input",
        "there is nothing to answer; append input or ask first",
    ),
    (State.RESPONDING, Trigger.CREATE): (
        Conflict,
        "response_already_active",
        "a response is active; wait for its end or cancel it first",
    ),
    (State.IDLE, Trigger.CANCEL): (Conflict, "response_not_active", "no response is active"),
    (State.LISTENING, Trigger.CANCEL): (Conflict, "response_not_active", "no response is active"),
    **{
        (state, trigger): (Conflict, "session_closed", _CLOSED)
        for state in (State.CLOSING, State.CLOSED)
        for trigger in (Trigger.INPUT, Trigger.CREATE, Trigger.CANCEL)
    },
}


def move(state: State, trigger: Trigger) -> State:
    """The next state, or the typed error of an illegal trigger."""
    if (target := MOVES.get((state, trigger))) is not None:
        return target
    if (refusal := REFUSALS.get((state, trigger))) is not None:
        kind, code, message = refusal
        raise kind(message, code=code)
    raise ServerFault(f"a session that is {state} cannot see {trigger}")
