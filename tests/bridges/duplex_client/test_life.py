"""Heartbeats, silence, the ways a session ends, and what waits while there is no socket."""

from __future__ import annotations

import pytest

from bridges.duplex_client.link import EngineUnit, LinkEnded, LinkError, LinkLost, LinkOptions
from bridges.duplex_client.outgoing import MAX_UNWRITTEN, Phase
from tests.bridges.duplex_client.saying import Talk

UNIT = EngineUnit(pcm=b"\0\0", duration_ms=1000, end_ms=1000)


def types(talk: Talk) -> list[str]:
    return [frame["type"] for frame in talk.write()]


def test_a_heartbeat_every_thirty_seconds() -> None:
    talk = Talk()
    types(talk)
    beats = 0
    for _ in range(125):
        talk.later(1.0)
        beats += types(talk).count("session.heartbeat")
        talk.hear("turn.event")
    assert beats == 4


def test_a_silent_socket_counts_as_lost() -> None:
    talk = Talk()
    talk.later(64)
    assert talk.protocol.broken is None
    talk.later(2)
    assert talk.protocol.broken == "not a word for 65 s"


def test_our_own_pause_is_not_the_engines_silence() -> None:
    talk = Talk()
    talk.protocol.pause()
    talk.later(500)
    assert talk.protocol.broken is None
    talk.protocol.unpause(talk.now)
    talk.later(64)
    assert talk.protocol.broken is None


def test_a_write_that_takes_too_long() -> None:
    talk = Talk()
    types(talk)
    talk.protocol.append(UNIT)
    while (frame := talk.protocol.next_frame(talk.now)) is not None:
        if frame.kind == "input_audio_buffer.append":
            break
        talk.protocol.written(frame, talk.now)
    assert talk.protocol.due() == talk.now + 10
    talk.later(10)
    assert talk.protocol.broken == "it takes nothing"


@pytest.mark.parametrize("kind", ["session.closed", "session.expired"])
def test_the_engines_word_that_it_is_over(kind: str) -> None:
    talk = Talk()
    asked = talk.protocol.commit(False)
    talk.write()
    talk.settled()
    assert talk.hear(kind, reason="idle_ttl_expired") == [LinkEnded("idle_ttl_expired", True)]
    assert talk.settled()[asked].code == "link_closed"
    with pytest.raises(LinkError) as refused:
        talk.protocol.append(UNIT)
    assert refused.value.code == "link_closed"


def test_a_takeover() -> None:
    talk = Talk()
    told = talk.hear("session.replaced", seq=None, attachment_generation=1)
    assert told == [LinkEnded("session_replaced", False)]


def test_without_a_token_a_loss_is_the_end() -> None:
    talk = Talk(live=False)
    talk.write()
    talk.hear("session.created", seq=None, session={"id": "duplex-1"})
    append = talk.protocol.append(UNIT)
    talk.settled()
    talk.protocol.lost("broke")
    assert talk.events() == [LinkLost("broke"), LinkEnded("link_lost", False)]
    assert talk.settled()[append].code == "link_lost"


@pytest.mark.parametrize(
    ("code", "confirmed"),
    [
        ("session_resume_expired", True),
        ("invalid_session_resume", False),
        ("unsupported_session_resume", False),
        ("invalid_resume_token", False),
        ("session_resume_conflict", False),
    ],
)
def test_a_resume_that_is_refused_for_good(code: str, confirmed: bool) -> None:
    talk = Talk()
    waiting = talk.protocol.append(UNIT)
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    talk.write()
    talk.events()
    told = talk.hear("error", seq=None, error={"code": code, "message": "no"})
    assert told == [LinkEnded(code, confirmed)]
    assert talk.settled()[waiting].code == "link_lost"


def test_a_resume_that_is_refused_for_now() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    talk.write()
    talk.events()
    assert not talk.hear("error", seq=None, error={"code": "runtime_resume_failed", "message": "no"})
    assert talk.protocol.broken is not None
    talk.protocol.lost(talk.protocol.broken)
    assert talk.protocol.phase is Phase.LOST


def test_a_resume_that_is_not_answered() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now, talk.now + 5)
    talk.write()
    assert talk.protocol.due() == talk.now + 5
    talk.later(5)
    assert talk.protocol.broken == "no answer to the resume"


def test_events_that_the_engine_no_longer_has() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    talk.protocol.connected(talk.now)
    talk.write()
    talk.events()
    told = talk.hear("session.resync_required", seq=None, reason="journal_gap")
    assert told == [LinkEnded("journal_gap", False)]


def test_a_close_refuses_what_comes_after_it_and_follows_what_came_before() -> None:
    talk = Talk()
    talk.write()
    talk.protocol.append(UNIT)
    talk.protocol.close("done")
    with pytest.raises(LinkError):
        talk.protocol.append(UNIT)
    assert talk.protocol.close("again") is None
    kinds = [kind for kind in types(talk) if kind != "session.event_ack"]
    assert kinds == ["input_audio_buffer.append", "session.close"]


def test_an_end_wakes_whoever_waits_and_refuses_first() -> None:
    """When the first waiter is woken, commands are refused already."""
    talk = Talk()
    asked = [talk.protocol.commit(False), talk.protocol.append(UNIT), talk.protocol.clear()]
    talk.protocol.end("link_lost", "gone", False)
    with pytest.raises(LinkError):
        talk.protocol.cancel(None)
    settled = talk.settled()
    assert set(settled) == set(asked)
    assert {error.code for error in settled.values()} == {"link_lost"}
    talk.protocol.end("timeout", "again", True)
    assert talk.events() == [LinkEnded("link_lost", False)]


def test_what_waits_is_bounded() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    for _ in range(MAX_UNWRITTEN):
        talk.protocol.append(UNIT)
    with pytest.raises(LinkError) as refused:
        talk.protocol.append(UNIT)
    assert (refused.value.code, refused.value.retryable) == ("input_backpressure", True)
    assert talk.protocol.close("full") is not None


def test_bytes_that_wait_are_bounded() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    large = EngineUnit(frames=(b"\xff\xd8" + bytes(10 * 2**20),))
    talk.protocol.append(large)
    talk.protocol.append(large)
    with pytest.raises(LinkError):
        talk.protocol.append(large)


def test_playback_that_waits_is_told_once() -> None:
    talk = Talk()
    talk.protocol.lost("broke")
    for played in (10, 20, 30):
        talk.protocol.playback("r1", played, played)
        talk.protocol.playback("r2", played, played)
    talk.protocol.connected(talk.now)
    talk.write()
    talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token="t2")
    acks = [f for f in talk.write() if f["type"] == "playback.ack"]
    assert [(ack["response_id"], ack["played_ms"]) for ack in acks] == [("r1", 30), ("r2", 30)]


def test_a_command_whose_caller_left_is_not_written() -> None:
    talk = Talk()
    talk.write()
    left = talk.protocol.append(UNIT)
    talk.protocol.leave(left)
    assert "input_audio_buffer.append" not in types(talk)
    assert not talk.settled()


def test_deadlines_stand_still_without_a_socket() -> None:
    talk = Talk(options=LinkOptions("ws://engine:1", "m", reply_s=10))
    asked = talk.protocol.commit(False)
    talk.write()
    talk.later(9)
    talk.protocol.lost("broke")
    talk.later(15)
    assert not talk.settled()
    talk.protocol.connected(talk.now)
    talk.write()
    talk.hear("session.resumed", seq=None, session={"id": "duplex-1"}, resume_token="t2")
    talk.later(9)
    assert not talk.settled()
    talk.later(2)
    assert talk.settled()[asked].code == "timeout"
