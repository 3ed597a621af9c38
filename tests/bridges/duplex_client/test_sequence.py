"""Each event once and none missing, over any number of sockets; acknowledged soon, but not one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridges.duplex_client.link import EngineFault, LinkEnded, LinkLost, LinkResumed, SpokenText
from bridges.duplex_client.outgoing import Phase
from tests.bridges.duplex_client.saying import Talk


def say(talk: Talk, seq: int, text: str) -> list[Any]:
    return talk.hear("response.output_audio_transcript.delta", seq=seq, response_id="r1", delta=text)


def resume(talk: Talk, number: int = 2) -> dict[str, Any]:
    """Lose the socket and take the session up on another; our first message there."""
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    (hello,) = talk.write()
    talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token=f"t{number}")
    return hello


def test_a_resume_asks_for_what_is_missing_with_the_newest_token() -> None:
    talk = Talk()
    assert resume(talk) == {
        "type": "session.resume",
        "session_id": "duplex-1",
        "resume_token": "t1",
        "last_received_server_event_seq": 1,
    }
    talk.hear("session.heartbeat_ack", seq=2)
    hello = resume(talk, 3)
    assert (hello["resume_token"], hello["last_received_server_event_seq"]) == ("t2", 2)


def test_the_reader_is_told_once_of_each_loss() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    talk.protocol.lost("broke again")
    talk.protocol.connected(talk.now)
    talk.write()
    assert talk.events() == [LinkLost("broke")]
    told = talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token="t2")
    assert told == [LinkResumed()]
    assert talk.protocol.phase is Phase.LIVE


PIECES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=12)


@given(PIECES)
def test_any_split_and_repetition_of_the_journal_gives_each_event_once(pieces: list[tuple[int, int]]) -> None:
    """The journal is sent in pieces, each over a socket of its own: (events that are sent again, events
    that may be new). Whatever the pieces, an unbroken run from 1 comes out."""
    talk = Talk()
    talk.respond()
    base = talk.seq
    heard: list[str] = []
    for again, more in pieces:
        seen = talk.protocol.sequence.seen
        for seq in range(max(1, seen + 1 - again), seen + 1 + more):
            heard += [event.text for event in say(talk, seq, str(seq)) if isinstance(event, SpokenText)]
        resume(talk)
        talk.events()
    total = sum(more for _, more in pieces)
    assert heard == [str(base + number) for number in range(1, total + 1)]


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_events_may_come_before_the_answer_to_a_resume(early: list[bool]) -> None:
    talk = Talk()
    talk.respond()
    base = talk.seq
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    talk.write()
    talk.events()
    numbers = range(base + 1, base + 1 + len(early))
    first = [seq for seq, before in zip(numbers, early, strict=True) if before]
    for seq in numbers[: len(first)]:
        assert not say(talk, seq, str(seq))
    told = talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token="t2")
    for seq in numbers:
        told += say(talk, seq, str(seq))
    assert told[0] == LinkResumed()
    assert [event.text for event in told[1:]] == [str(seq) for seq in numbers]


def test_a_gap_is_mended_by_a_resume() -> None:
    talk = Talk()
    talk.respond()
    at = talk.seq
    assert not say(talk, at + 2, "second")
    assert talk.protocol.broken == f"events {at + 1} to {at + 1} are missing"
    assert not say(talk, at + 1, "after the gap nothing is read on this socket")
    assert resume(talk)["last_received_server_event_seq"] == at
    talk.events()
    assert [event.text for event in say(talk, at + 1, "a") + say(talk, at + 2, "b")] == ["a", "b"]


def test_a_gap_that_a_resume_does_not_mend_ends_the_link() -> None:
    talk = Talk()
    say(talk, 5, "x")
    resume(talk)
    talk.events()
    assert say(talk, 5, "x") == [LinkEnded("bad_engine_event", False)]


def test_a_gap_without_resume_is_told_and_passed() -> None:
    talk = Talk(live=False)
    talk.write()
    talk.hear("session.created", seq=None, session={"id": "duplex-1"})
    (fault,) = talk.hear("turn.event", seq=3)
    assert isinstance(fault, EngineFault) and "1 to 2" in fault.message
    assert talk.protocol.sequence.seen == 3


def test_after_a_journal_overflow_events_have_no_numbers() -> None:
    talk = Talk()
    talk.respond()
    talk.hear("session.resync_required", seq=None, reason="journal_overflow")
    told = talk.hear("response.output_text.delta", seq=None, response_id="r1", delta="x")
    assert told == [SpokenText("r1", "x", False)]
    talk.protocol.lost("broke")
    assert talk.events() == [LinkLost("broke"), LinkEnded("link_lost", False)]


def acks(talk: Talk) -> list[int]:
    return [f["server_event_seq"] for f in talk.write() if f["type"] == "session.event_ack"]


def test_a_lone_event_is_acknowledged_at_once() -> None:
    talk = Talk()
    acks(talk)
    talk.later(1)
    talk.hear("turn.event", seq=2)
    assert acks(talk) == [2]
    assert acks(talk) == []


def test_many_events_share_an_acknowledgement() -> None:
    talk = Talk()
    acks(talk)
    talk.later(1)
    written = []
    for seq in range(2, 102):
        talk.hear("turn.event", seq=seq)
        talk.now += 0.001
        written += acks(talk)
    assert 3 <= len(written) <= 6
    talk.later(0.05)
    written += acks(talk)
    assert written[-1] == 101 and written == sorted(set(written))


def test_an_acknowledgement_does_not_wait_for_more_events() -> None:
    talk = Talk()
    acks(talk)
    talk.hear("turn.event", seq=2)
    assert acks(talk) == []
    due = talk.protocol.due()
    assert due is not None and due <= talk.now + 0.05
    talk.later(0.05)
    assert acks(talk) == [2]


def test_after_a_resume_the_last_event_is_acknowledged_again() -> None:
    """The acknowledgement may have been lost with the socket, and the engine's journal is bounded."""
    talk = Talk()
    talk.later(1)
    assert acks(talk) == [1]
    resume(talk)
    talk.later(1)
    assert acks(talk) == [1]
