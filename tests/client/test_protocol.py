"""The client's protocol, without a socket: every event once and in order, over any number of sockets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client.protocol import ClientError, ClientProtocol, ConnectionResumed, SessionLost

CREATED = {
    "type": "session.created",
    "event_id": "e",
    "session": {"id": "duplex-1"},
    "attachment_generation": 1,
    "resume_token": "t1",
}


def notice(seq: int) -> dict[str, Any]:
    return {
        "type": "vigil.notice",
        "event_id": f"event_{seq}",
        "server_event_seq": seq,
        "code": "engine_lost",
        "message": str(seq),
    }


def resumed(generation: int, token: str = "t2") -> dict[str, Any]:
    return {
        "type": "session.resumed",
        "event_id": "e",
        "session_id": "duplex-1",
        "session": {"id": "duplex-1"},
        "attachment_generation": generation,
        "resume_token": token,
    }


def refused(code: str) -> dict[str, Any]:
    return {"type": "error", "event_id": "e", "error": {"code": code, "message": "m"}}


def opened() -> ClientProtocol:
    protocol = ClientProtocol({"model": "m"})
    assert protocol.first_message() == {"type": "session.update", "session": {"model": "m"}}
    protocol.receive(CREATED)
    assert protocol.ready
    assert protocol.session_id == "duplex-1"
    return protocol


@given(st.lists(st.integers(0, 12), max_size=6))
def test_events_come_once_and_in_order_over_any_drops(drops: list[int]) -> None:
    """The server has 12 events. At each drop the client may miss some; the journal replays them."""
    protocol, got, at = opened(), [], 1
    for generation, until in enumerate(drops, start=2):
        for seq in range(at, max(at, until) + 1):
            got += protocol.receive(notice(seq)).events if seq <= 12 else []
        asked = protocol.first_message()
        assert asked["last_received_server_event_seq"] == len(got)
        assert [type(e) for e in protocol.receive(resumed(generation)).events] == [ConnectionResumed]
        at = max(1, asked["last_received_server_event_seq"] - 1)  # a server that replays a little too much
    for seq in range(at, 13):
        got += protocol.receive(notice(seq)).events
    assert [event.message for event in got] == [str(n) for n in range(1, 13)]


def test_every_sequenced_event_is_acknowledged_at_once() -> None:
    protocol = opened()
    assert protocol.receive(notice(1)).reply == {"type": "session.event_ack", "server_event_seq": 1}
    assert protocol.receive(notice(1)).reply is None


def test_frames_before_resumed_are_held_and_follow_it() -> None:
    protocol = opened()
    protocol.first_message()
    assert protocol.receive(notice(1)).events == []
    kinds = [e.type for e in protocol.receive(resumed(2)).events]
    assert kinds == ["connection.resumed", "vigil.notice"]


def test_a_refused_opening_is_an_error_with_its_code() -> None:
    protocol = ClientProtocol({})
    with pytest.raises(ClientError) as caught:
        protocol.receive(refused("resource_exhausted"))
    assert caught.value.code == "resource_exhausted"


def test_a_final_refusal_to_resume_ends_the_session_and_a_passing_one_does_not() -> None:
    protocol = opened()
    protocol.first_message()
    protocol.receive(refused("internal_error"))
    assert protocol.can_resume
    with pytest.raises(SessionLost):
        protocol.receive(refused("invalid_resume_token"))
    assert not protocol.can_resume


@pytest.mark.parametrize(
    ("payload", "closed"),
    [
        ({"type": "session.closed", "reason": "client_close"}, "client_close"),
        ({"type": "session.expired", "reason": "idle_ttl_expired"}, "idle_ttl_expired"),
        ({"type": "session.replaced", "attachment_generation": 1}, "session_replaced"),
        ({"type": "session.resync_required", "reason": "journal_overflow"}, None),
    ],
)
def test_what_ends_resuming(payload: dict[str, Any], closed: str | None) -> None:
    protocol = opened()
    protocol.receive({"event_id": "e", "session_id": "duplex-1", **payload})
    assert protocol.closed == closed
    assert not protocol.can_resume


def test_an_error_during_the_session_is_an_event() -> None:
    assert [e.type for e in opened().receive(refused("bad_event")).events] == ["error"]


def test_an_unknown_or_misshapen_event_is_passed_on() -> None:
    protocol = opened()
    assert protocol.receive({"type": "future.event", "x": 1}).events[0].type == "future.event"
    assert protocol.receive({"type": "response.done", "x": 1}).events[0].type == "response.done"
