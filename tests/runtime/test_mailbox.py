"""What waits for a session: bounded, in order, each once; what is urgent and what is whole has its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runtime.mailbox import URGENT, Mailbox
from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.session.backend import Capabilities
from orchestrator.session.commands import AnyCommand, AppendInput, Cancel, CommitInput, Heartbeat
from orchestrator.session.limits import SessionLimits
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import ResourceExhausted
from tests.session.driver import make_core

THINS = Capabilities(
    1000, optional_input_modalities=("audio", "video"), input_modes=("replace_latest_chunk",)
)
LIMITS = RuntimeLimits(mailbox=6, mailbox_reserve=2, glimpses=2)


def mailbox(limits: RuntimeLimits = LIMITS) -> Mailbox:
    return Mailbox(make_core(THINS, SessionLimits(max_pending_commits=4)), limits)


def glimpse(name: str) -> AppendInput:
    return AppendInput(name, InputUnit((FrameInput(b"\xff\xd8", 0),)))


def drained(box: Mailbox) -> list[AnyCommand]:
    return [box.pop().command for _ in range(len(box))]


def test_a_full_one_has_room_for_what_is_urgent_and_a_last_close_finds_one_always() -> None:
    box = mailbox()
    for _ in range(6):
        box.put(Heartbeat())
    with pytest.raises(ResourceExhausted) as refused:
        box.put(Heartbeat(event_id="e"))
    assert (refused.value.code, refused.value.event_id) == ("input_backpressure", "e")
    box.put(Cancel())
    box.put(Cancel())
    with pytest.raises(ResourceExhausted):
        box.put(Cancel())
    assert box.put(Cancel(), always=True) is not None
    assert len(box) == 9


def test_what_one_event_asks_for_is_put_in_whole_or_not_at_all() -> None:
    box = mailbox()
    box.put_together([glimpse("a"), CommitInput()], "e1")
    with pytest.raises(ResourceExhausted) as refused:
        box.put_together([glimpse("b"), *(CommitInput() for _ in range(4))], "e2")
    assert refused.value.event_id == "e2" and len(box) == 2
    # What was charged for the part that could be admitted was given back.
    assert box.put_together([glimpse("b"), *(CommitInput() for _ in range(3))], "e3")
    assert len(drained(box)) == 6


def test_a_known_operation_is_nothing_to_do() -> None:
    box = mailbox()
    assert box.put(glimpse("a")) is not None
    assert box.put(glimpse("a")) is None and len(box) == 1


@given(st.lists(st.sampled_from(["glimpse", "commit", "heartbeat", "cancel", "pop"]), max_size=60))
def test_all_come_out_once_in_order_but_for_older_pictures_of_a_row(steps: list[str]) -> None:
    box, given_in, out, thinned = mailbox(), list[AnyCommand](), list[AnyCommand](), list[AnyCommand]()
    for number, step in enumerate(steps):
        if step == "pop":
            if box:
                out.append(box.next)
                assert box.pop().command is out[-1]
            continue
        makes = {"commit": CommitInput, "heartbeat": Heartbeat, "cancel": Cancel}
        command = glimpse(str(number)) if step == "glimpse" else makes[step](event_id=str(number))
        try:
            box.put(command)
        except ResourceExhausted:
            assert len(box) >= LIMITS.mailbox or step == "commit"
        else:
            given_in.append(command)
        if (old := box.thinned()) is not None:
            thinned.append(old)
        assert len(box) <= LIMITS.mailbox + (LIMITS.mailbox_reserve if isinstance(command, URGENT) else 2)
    out += drained(box)
    assert out == [command for command in given_in if all(command is not old for old in thinned)]
    assert all(isinstance(old, AppendInput) for old in thinned)
