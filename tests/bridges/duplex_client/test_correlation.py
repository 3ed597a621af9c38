"""An error is for the command that it names; answers come in the order of the commands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.duplex_client.link import EngineFault, EngineUnit, LinkError
from tests.bridges.duplex_client.saying import Talk

UNIT = EngineUnit(pcm=b"\0\0" * 16000, duration_ms=1000, end_ms=1000)


def refuse(talk: Talk, event_id: str | None, code: str = "bad_event", **more: Any) -> list[Any]:
    named = {} if event_id is None else {"event_id": event_id}
    return talk.hear("error", error={"type": "x", "code": code, "message": "no", **named, **more})


def ask(talk: Talk, kind: str) -> str:
    protocol = talk.protocol
    return {
        "update": lambda: protocol.update({}),
        "commit": lambda: protocol.commit(False),
        "clear": protocol.clear,
        "create": lambda: protocol.create_response({}),
        "item": lambda: protocol.add_item({"type": "message"}),
    }[kind]()


KINDS = ("update", "commit", "clear", "create", "item")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bystander", KINDS)
def test_an_error_reaches_its_command_and_no_other(kind: str, bystander: str) -> None:
    talk = Talk()
    before, asked, after = ask(talk, bystander), ask(talk, kind), ask(talk, bystander)
    talk.write()
    assert not refuse(talk, asked)
    settled = talk.settled()
    assert set(settled) == {asked} and settled[asked].code == "bad_event"
    assert len(talk.protocol.replies) == 2
    assert before != after


def test_errors_that_name_nothing_are_nobodys() -> None:
    talk = Talk()
    ask(talk, "commit")
    talk.write()
    assert refuse(talk, None) == [EngineFault("bad_event", "no")]
    flat = talk.hear("error", seq=None, code="multi", error="text")
    assert flat == [EngineFault("multi", "text")]
    assert not talk.settled()


def test_an_error_about_an_append_names_it() -> None:
    talk = Talk()
    append = talk.protocol.append(UNIT)
    talk.write()
    assert talk.settled() == {append: append}
    fault = EngineFault("input_backpressure", "no", append, True)
    assert refuse(talk, append, "input_backpressure") == [fault]


def test_what_a_client_has_to_tolerate() -> None:
    talk = Talk()
    cancel = talk.protocol.cancel("r1")
    talk.protocol.playback("r1", 10, 10)
    frames = talk.frames()
    assert not refuse(talk, cancel, "response_not_active")
    playback = next(frame.event_id for frame in frames if frame.kind == "playback.ack")
    assert not refuse(talk, playback, "playback_ack_too_late")
    assert refuse(talk, playback, "playback_item_not_found")
    assert talk.protocol.counts["tolerated"] == 2


def test_late_and_unknown_errors_are_dropped() -> None:
    talk = Talk()
    asked = ask(talk, "commit")
    talk.write()
    talk.later(11)
    assert talk.settled()[asked].code == "timeout"
    assert not refuse(talk, asked)
    assert not refuse(talk, "evt_of_another")
    assert talk.protocol.replies.late == 1
    assert talk.protocol.counts["unknown_error"] == 1


def test_the_late_answer_of_a_command_is_not_the_next_ones() -> None:
    talk = Talk()
    first = ask(talk, "commit")
    talk.write()
    talk.later(11)
    assert first in talk.settled()
    second = ask(talk, "commit")
    talk.write()
    talk.hear("input_audio_buffer.committed", item_id="one")
    assert not talk.settled()
    talk.hear("input_audio_buffer.committed", item_id="two")
    assert talk.settled() == {second: None}


def test_a_deadline_starts_when_the_command_is_written() -> None:
    talk = Talk()
    asked = ask(talk, "commit")
    talk.later(60)
    assert not talk.settled()
    talk.write()
    talk.later(9)
    assert not talk.settled()
    talk.later(2)
    assert isinstance(talk.settled()[asked], LinkError)


def test_an_answer_before_its_command_is_not_its_own() -> None:
    """A detector commits by itself while our commit is still unwritten."""
    talk = Talk()
    asked = ask(talk, "commit")
    talk.hear("input_audio_buffer.committed", item_id="detector")
    assert not talk.settled()
    talk.write()
    talk.hear("input_audio_buffer.committed", item_id="ours")
    assert talk.settled() == {asked: None}


def test_items_are_known_by_their_id() -> None:
    talk = Talk()
    first = talk.protocol.add_item({"type": "message", "id": "a"})
    second = talk.protocol.add_item({"type": "message", "id": "b"})
    talk.write()
    talk.hear("conversation.item.added", item={"id": "b", "type": "message"})
    talk.hear("conversation.item.created", item={"id": "b", "type": "message"})
    assert talk.settled() == {second: None}
    talk.hear("conversation.item.created", item={"id": "a", "type": "message"})
    assert talk.settled() == {first: None}


ANSWERS = {
    "update": ("session.updated", {"session": {"id": "duplex-1"}}),
    "commit": ("input_audio_buffer.committed", {"item_id": "i"}),
    "clear": ("input_audio_buffer.cleared", {}),
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(ANSWERS)), st.sampled_from(["answer", "error"])), max_size=20)
)
def test_ids_correlate(plan: list[tuple[str, str]]) -> None:
    """Whatever mix of answers and errors comes, in order, each command gets its own and nothing else."""
    talk = Talk()
    asked = [ask(talk, kind) for kind, _ in plan]
    talk.write()
    for event_id, (kind, outcome) in zip(asked, plan, strict=True):
        if outcome == "error":
            refuse(talk, event_id, f"code_{event_id}")
        else:
            name, fields = ANSWERS[kind]
            talk.hear(name, **fields)
        settled = talk.settled()
        assert set(settled) == {event_id}
        result = settled[event_id]
        assert isinstance(result, LinkError) == (outcome == "error")
        assert outcome != "error" or result.code == f"code_{event_id}"
