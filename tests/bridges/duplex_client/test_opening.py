"""The handshake: our update is the first message, then ``session.created``, then ``session.updated``."""

from __future__ import annotations

import pytest

from bridges.duplex_client.address import session_url
from bridges.duplex_client.link import EngineFault, LinkEnded, LinkError, OpenedSession
from bridges.duplex_client.outgoing import Phase
from tests.bridges.duplex_client.saying import AUTO, TURN, Talk


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("ws://h:1", "ws://h:1/v1/realtime?duplex=1&autostart=0&model=m"),
        ("http://h", "ws://h/v1/realtime?duplex=1&autostart=0&model=m"),
        ("https://h/x/", "wss://h/x/?duplex=1&autostart=0&model=m"),
        ("ws://h/v1/duplex?a=b", "ws://h/v1/duplex?a=b&duplex=1&autostart=0&model=m"),
        ("ws://h?autostart=1&duplex=0", "ws://h/v1/realtime?autostart=0&duplex=1&model=m"),
    ],
)
def test_addresses(given: str, made: str) -> None:
    assert session_url(given, "m") == made


@pytest.mark.parametrize("given", ["", "h:1", "ftp://h", "ws://", "ws://h:99999"])
def test_no_address(given: str) -> None:
    with pytest.raises(LinkError) as refused:
        session_url(given, "m")
    assert refused.value.code == "connect_failed"


def test_our_update_opens_the_session() -> None:
    talk = Talk(TURN, live=False)
    (hello,) = talk.write()
    assert hello["type"] == "session.update"
    assert hello["session"] == {"model": "m", **TURN}
    assert not talk.hear("session.created", session={"id": "duplex-1", "x": 1}, resume_token="t", seq=None)
    opened = talk.settled()[talk.opening]
    assert opened == OpenedSession("duplex-1", {"id": "duplex-1", "x": 1}, True)


def test_the_updated_of_the_opening_answers_nobody() -> None:
    talk = Talk(live=False)
    talk.write()
    talk.hear("session.created", session={"id": "duplex-1"}, seq=None)
    asked = talk.protocol.update({"instructions": "x"})
    talk.write()
    talk.hear("session.updated", session={"id": "duplex-1"})
    assert asked not in talk.settled()
    talk.hear("session.updated", session={"id": "duplex-1", "instructions": "x"})
    assert talk.settled()[asked]["instructions"] == "x"


def test_an_engine_that_sends_no_second_event_is_understood() -> None:
    talk = Talk(live=False)
    talk.write()
    talk.hear("session.created", session={"id": "duplex-1"}, seq=None)
    asked = talk.protocol.update({"instructions": "x"})
    talk.write()
    talk.hear("response.created", response_id="r", response={"id": "r"})
    talk.hear("session.updated", session={"id": "duplex-1"})
    assert asked in talk.settled()


@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"type": "rate_limit_error", "code": "resource_exhausted", "message": "full"}},
        {"code": "resource_exhausted", "error": "full"},
    ],
    ids=["nested", "flat"],
)
def test_a_refused_opening(refusal: dict[str, object]) -> None:
    talk = Talk(live=False)
    talk.write()
    events = talk.hear("error", seq=None, **refusal)
    error = talk.settled()[talk.opening]
    assert (error.code, error.message, error.retryable) == ("resource_exhausted", "full", True)
    assert events == [LinkEnded("resource_exhausted", True)]
    with pytest.raises(LinkError):
        talk.protocol.cancel(None)


def test_no_session_in_time() -> None:
    talk = Talk(live=False)
    talk.write()
    talk.later(179)
    assert not talk.settled()
    talk.later(2)
    assert talk.settled()[talk.opening].code == "timeout"
    assert talk.events() == [LinkEnded("timeout", False)]


@pytest.mark.parametrize("written", [True, False])
def test_a_socket_lost_while_opening(written: bool) -> None:
    """Where our opening may have arrived, nobody knows whether the engine has a session now."""
    talk = Talk(live=False)
    if written:
        talk.write()
    talk.protocol.lost("broke")
    assert talk.events() == [LinkEnded("link_lost", not written)]
    assert talk.settled()[talk.opening].code == "link_lost"


@pytest.mark.parametrize(
    "created",
    [{}, {"session": 1}, {"session": {}}, {"session": {"id": ""}}, {"session": {"id": 7}}],
)
def test_a_malformed_created(created: dict[str, object]) -> None:
    talk = Talk(live=False)
    talk.write()
    talk.hear("session.created", seq=None, **created)
    assert talk.settled()[talk.opening].code == "bad_engine_event"
    assert talk.protocol.phase is Phase.ENDED


def test_a_second_created_is_a_fault() -> None:
    talk = Talk()
    (fault,) = talk.hear("session.created", session={"id": "duplex-2"}, seq=None)
    assert isinstance(fault, EngineFault) and fault.code == "bad_engine_event"
    assert talk.protocol.session_id == "duplex-1"


def test_commands_wait_for_the_session() -> None:
    talk = Talk(AUTO, live=False)
    talk.protocol.cancel(None)
    assert [frame["type"] for frame in talk.write()] == ["session.update"]
    talk.hear("session.created", session={"id": "duplex-1"}, seq=None)
    assert [frame["type"] for frame in talk.write()] == ["response.cancel"]
