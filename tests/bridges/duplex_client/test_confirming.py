"""Which appends may be lost with a socket: all that were written and of which the engine gave no sign.

A heartbeat is answered in the order of our commands, so its answer is a sign for all appends before it.
"""

from __future__ import annotations

from bridges.duplex_client.link import EngineUnit, LinkResumed
from tests.bridges.duplex_client.saying import Talk

UNIT = EngineUnit(pcm=b"\0\0", duration_ms=1000, end_ms=1000)


def append(talk: Talk) -> str:
    event_id = talk.protocol.append(UNIT)
    talk.write()
    return event_id


def lose(talk: Talk) -> LinkResumed:
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    talk.write()
    talk.events()
    (resumed,) = talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token="t2")
    assert isinstance(resumed, LinkResumed)
    return resumed


def test_without_a_sign_a_written_append_is_unconfirmed() -> None:
    talk = Talk()
    first, second = append(talk), append(talk)
    assert lose(talk).unconfirmed == (first, second)
    assert lose(talk).unconfirmed == ()


def test_an_unwritten_append_waits_and_is_written_once() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    event_id = talk.protocol.append(UNIT)
    assert talk.write() == []
    talk.protocol.connected(talk.now)
    assert [f["type"] for f in talk.write()] == ["session.resume"]
    talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token="t2")
    written = [f for f in talk.write() if f["type"] == "input_audio_buffer.append"]
    assert [f["event_id"] for f in written] == [event_id]
    assert lose(talk).unconfirmed == (event_id,)
    assert not [f for f in talk.write() if f["type"] == "input_audio_buffer.append"]


def test_an_append_that_broke_off_keeps_its_place() -> None:
    talk = Talk()
    first = talk.protocol.append(UNIT)
    second = talk.protocol.append(UNIT)
    talk.later(0.1)
    broken = talk.protocol.next_frame(talk.now)
    while broken is not None and broken.kind != "input_audio_buffer.append":
        talk.protocol.written(broken, talk.now)
        broken = talk.protocol.next_frame(talk.now)
    assert broken is not None
    assert broken.event_id == first
    talk.protocol.unwritten(broken)
    assert lose(talk).unconfirmed == ()
    written = [f["event_id"] for f in talk.write() if f["type"] == "input_audio_buffer.append"]
    assert written == [first, second]


def test_a_heartbeat_asks_for_a_sign() -> None:
    talk = Talk()
    append(talk)
    talk.later(1.0)
    assert [f["type"] for f in talk.write()].count("session.heartbeat") == 1
    late = append(talk)
    talk.hear("session.heartbeat_ack")
    assert lose(talk).unconfirmed == (late,)


def test_one_question_at_a_time() -> None:
    talk = Talk()
    beats = 0
    for _ in range(50):
        talk.protocol.append(UNIT)
        talk.later(0.1)
        beats += [f["type"] for f in talk.write()].count("session.heartbeat")
    assert beats == 1
    for _ in range(50):
        talk.protocol.append(UNIT)
        talk.later(0.1)
        beats += [f["type"] for f in talk.write()].count("session.heartbeat")
        talk.hear("session.heartbeat_ack")
    assert 15 <= beats <= 26


def test_nothing_is_asked_while_nothing_is_appended() -> None:
    talk = Talk()
    append(talk)
    talk.later(1.0)
    talk.write()
    talk.hear("session.heartbeat_ack")
    for _ in range(25):
        talk.later(1.0)
        talk.hear("turn.event")
        assert "session.heartbeat" not in [f["type"] for f in talk.write()]


def test_an_answer_confirms_what_was_written_before_its_command() -> None:
    talk = Talk()
    append(talk)
    talk.protocol.commit(False)
    talk.write()
    after = append(talk)
    talk.hear("input_audio_buffer.committed", item_id="i")
    assert lose(talk).unconfirmed == (after,)


def test_an_error_about_an_append_is_a_sign() -> None:
    talk = Talk()
    refused, other = append(talk), append(talk)
    talk.hear("error", error={"code": "bad_event", "message": "no", "event_id": refused})
    assert lose(talk).unconfirmed == (other,)


def beats(talk: Talk) -> int:
    return [frame["type"] for frame in talk.write()].count("session.heartbeat")


def lost_with_a_question(talk: Talk) -> str:
    """A socket breaks while a heartbeat is out; the id of what is asked on the next one."""
    append(talk)
    talk.later(1.0)
    assert beats(talk) == 1
    lose(talk)
    (marker,) = [f for f in talk.write() if f["type"] == "conversation.item.retrieve"]
    return str(marker["event_id"])


def test_an_answer_to_a_heartbeat_of_a_lost_socket_proves_nothing_for_a_later_one() -> None:
    """However late it comes: nothing is asked before the engine has caught up."""
    talk = Talk()
    lost_with_a_question(talk)
    fresh = append(talk)
    talk.later(20.0)
    assert beats(talk) == 0
    talk.hear("session.heartbeat_ack")
    assert lose(talk).unconfirmed == (fresh,)


def test_heartbeats_that_are_never_answered_do_not_shift_the_later_answers() -> None:
    talk = Talk()
    for _ in range(3):
        marker = lost_with_a_question(talk)
        no_item = {"code": "item_not_found", "message": "no", "event_id": marker}
        assert not talk.hear("error", error=no_item)
    append(talk)
    talk.later(1.0)
    assert beats(talk) == 1
    talk.hear("session.heartbeat_ack")
    assert lose(talk).unconfirmed == ()


def test_where_no_heartbeat_was_out_nothing_is_asked() -> None:
    talk = Talk()
    append(talk)
    lose(talk)
    assert "conversation.item.retrieve" not in [f["type"] for f in talk.write()]
