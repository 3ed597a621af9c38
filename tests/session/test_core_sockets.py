"""A session and its sockets: what is written in which order, resuming, takeover, reading too slowly."""

from typing import Any

import orjson
import pytest

from orchestrator.session.backend import (
    Action,
    AudioDelta,
    Capabilities,
    Decision,
    Notice,
    TextDelta,
    TickDone,
    TurnEnd,
)
from orchestrator.session.commands import (
    AckEvents,
    AppendInput,
    Cancel,
    Close,
    CreateResponse,
    Heartbeat,
    PlaybackAck,
    SignalTurn,
)
from orchestrator.session.effects import BackendTell
from orchestrator.session.fence import Fence
from orchestrator.session.lease import LeaseLimits
from orchestrator.session.limits import SessionLimits
from orchestrator.session.outbox import OutboxLimits
from orchestrator.session.states import State
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import VigilError
from tests.session.driver import Driver, make_core

VOICE = Capabilities(1000, optional_input_modalities=("audio", "video"), output_modalities=("text", "audio"))
NO_RESUME = Capabilities(1000, optional_input_modalities=("video",), supports_session_resume=False)
F0 = Fence()
FRAME = AppendInput("a", InputUnit((FrameInput(b"jpeg", 0),)))


def attached(capabilities: Capabilities = VOICE, **more: Any) -> Driver:
    """A session with its first socket; what that reads first is taken already."""
    limits, lease = more.pop("limits", None), more.pop("lease", None)
    d = Driver(make_core(capabilities, limits, lease=lease, **more))
    _, effects = d.core.attach(0.0)
    d.absorb(effects)
    d.take_all()
    d.send(FRAME)
    return d


def types(payloads: list[dict[str, Any]]) -> list[str]:
    return [payload["type"] for payload in payloads]


def seqs(payloads: list[dict[str, Any]]) -> list[int]:
    return [payload["server_event_seq"] for payload in payloads]


def notices(d: Driver, count: int) -> None:
    for number in range(count):
        d.yields(Notice("engine_lost", str(number)))


def refusal(d: Driver, token: Any, after: Any) -> str:
    with pytest.raises(VigilError) as refused:
        d.core.resume(d.now, token, after)
    return refused.value.code


# --- opening -----------------------------------------------------------------------------------------


def test_created_comes_first_and_unnumbered_then_updated_with_number_one() -> None:
    d = Driver(make_core(VOICE))
    ticket, effects = d.core.attach(0.0)
    d.absorb(effects)
    created, updated = d.take_all()
    assert created["type"] == "session.created"
    assert "server_event_seq" not in created
    assert (created["resume_token"], created["attachment_generation"]) == (ticket.token, 1)
    assert (updated["type"], updated["server_event_seq"]) == ("session.updated", 1)
    assert created["session"]["id"] == updated["session"]["id"] == "duplex-1"
    assert created["event_id"] != updated["event_id"]


def test_a_model_without_resume_gives_no_token() -> None:
    d = Driver(make_core(NO_RESUME))
    _, effects = d.core.attach(0.0)
    d.absorb(effects)
    created = d.take_all()[0]
    assert "resume_token" not in created
    assert "attachment_generation" not in created


def test_numbers_have_no_gaps() -> None:
    d = attached()
    notices(d, 5)
    assert seqs(d.take_all()) == [2, 3, 4, 5, 6]


def test_a_session_without_a_socket_queues_nothing() -> None:
    d = Driver(make_core(VOICE))
    notices(d, 1000)
    assert d.take_all() == []
    assert not d.core.waiting


def test_ticks_go_only_to_clients_that_asked_for_them() -> None:
    for include, expected in (((), []), (("vigil.tick",), ["vigil.tick"])):
        d = attached(include=include)
        record = {"tick": 3, "media_time_s": 1.5, "action": "silence", "frames": 2, "score": None}
        d.yields(TickDone(F0, 3, (), record))
        assert types(d.take_all()) == expected


def test_heartbeats_and_signals_are_answered() -> None:
    d = attached()
    d.send(Heartbeat())
    d.send(SignalTurn("user_started"))
    ack, signalled = d.take_all()
    assert ack["type"] == "session.heartbeat_ack"
    assert (signalled["event"], signalled["turn_state"]) == ("user_started", "user_speaking")


# --- resuming ----------------------------------------------------------------------------------------


def test_a_dropped_socket_resumes_without_a_loss_or_a_double() -> None:
    d = attached()
    notices(d, 3)
    seen = d.take_all()[:2]  # the third was written and never arrived
    notices(d, 2)  # still in the outbox
    d.absorb(d.core.detach(1.0, 1))
    notices(d, 2)  # nobody is attached
    resumed = d.core.resume(2.0, "token-1", seqs(seen)[-1])
    assert resumed.missed is not None
    assert seqs([event.value for event in resumed.missed]) == [4, 5, 6, 7, 8]
    notices(d, 1)
    assert seqs(d.take_all()) == [9]


def test_replayed_events_are_the_very_same() -> None:
    d = attached()
    notices(d, 1)
    written = d.take_all()
    d.absorb(d.core.detach(1.0, 1))
    resumed = d.core.resume(2.0, "token-1", 1)
    assert resumed.missed is not None
    assert [event.value for event in resumed.missed] == written


def test_every_resume_rotates_the_token_and_counts_the_generation() -> None:
    d = attached()
    resumed = d.core.resume(1.0, "token-1", 1)
    assert resumed.ticket is not None
    assert (resumed.ticket.generation, resumed.ticket.token, resumed.ticket.displaced) == (2, "token-2", 1)
    assert not d.core.is_seated(1)
    assert d.core.is_seated(2)
    assert refusal(d, "token-1", 1) == "invalid_resume_token"
    d.absorb(d.core.detach(2.0, 1))
    assert d.core.attached, "a displaced socket detaches nobody"


@pytest.mark.parametrize(
    ("token", "after", "code"),
    [
        (None, 0, "invalid_session_resume"),
        ("token-1", "0", "invalid_session_resume"),
        ("token-1", -1, "invalid_session_resume"),
        ("token-1", True, "invalid_session_resume"),
        ("guess", 0, "invalid_resume_token"),
        ("token-1", 99, "session_resume_conflict"),
    ],
)
def test_refused_resumes_disturb_nobody(token: Any, after: Any, code: str) -> None:
    d = attached()
    assert refusal(d, token, after) == code
    assert d.core.is_seated(1)


def test_a_gap_is_told_and_changes_nothing() -> None:
    d = attached()
    notices(d, 3)
    d.take_all()
    d.send(AckEvents(3))
    d.absorb(d.core.detach(1.0, 1))
    resumed = d.core.resume(2.0, "token-1", 1)
    assert resumed.ticket is None
    assert not d.core.attached
    assert d.core.resume(2.0, "token-1", 3).ticket is not None


def test_acks_are_checked_and_say_nothing_on_success() -> None:
    d = attached()
    d.send(AckEvents(1))
    d.send(AckEvents(50))
    assert d.rejects() == ["invalid_event_ack"]
    assert d.take_all() == []


def test_a_closed_session_cannot_be_resumed() -> None:
    d = attached()
    d.absorb(d.core.detach(1.0, 1))
    d.send(Close())
    assert refusal(d, "token-1", 0) == "session_resume_expired"


def test_an_http_session_is_joined_by_invitation_and_from_then_on_delivered() -> None:
    d = Driver(make_core(VOICE))
    notices(d, 3)
    resumed = d.core.resume(0.0, d.core.invite().token, 0)
    assert resumed.missed == ()
    notices(d, 1)
    assert seqs(d.take_all()) == [1]


def test_a_disconnect_without_resume_ends_the_session() -> None:
    d = attached(NO_RESUME)
    d.absorb(d.core.detach(1.0, 1))
    assert d.core.state is State.CLOSED
    assert d.types()[-1] == "session.closed"


def test_a_detached_session_expires_after_its_grace() -> None:
    d = attached(lease=LeaseLimits(disconnect_grace_s=30.0))
    d.absorb(d.core.detach(10.0, 1))
    d.absorb(d.core.tick(39.0, busy=True))
    assert d.core.state.is_open
    d.absorb(d.core.tick(40.0, busy=True))
    assert d.types()[-1] == "session.expired"


def test_an_idle_session_expires_and_heartbeats_keep_it() -> None:
    d = attached(lease=LeaseLimits(idle_ttl_s=300.0))
    d.now = 200.0
    d.send(Heartbeat())
    d.absorb(d.core.tick(499.0, busy=False))
    assert d.core.state.is_open
    d.absorb(d.core.tick(500.0, busy=False))
    assert d.core.state is State.CLOSED


def test_a_journal_overflow_is_told_once_and_ends_numbering() -> None:
    d = attached(limits=SessionLimits(journal_bytes=6000))
    notices(d, 80)
    payloads = d.take_all()
    assert types(payloads).count("session.resync_required") == 1
    at = types(payloads).index("session.resync_required")
    assert all("server_event_seq" in payload for payload in payloads[:at])
    assert not any("server_event_seq" in payload for payload in payloads[at:])
    assert len(payloads) == 81
    d.absorb(d.core.detach(1.0, 1))
    assert d.core.resume(1.0, "token-1", 1).ticket is None


# --- cancelling what waits ---------------------------------------------------------------------------


def speak(d: Driver, chunks: int = 3, *, end: bool = False) -> None:
    fence = d.core.fence
    d.yields(Decision(fence, 1, Action.RESPONSE), TextDelta(fence, "words "))
    d.yields(*[AudioDelta(fence, bytes(2 * 2400), 24000)] * chunks)
    if end:
        d.yields(TurnEnd(fence))


def test_sent_counts_only_what_was_numbered() -> None:
    d = attached()
    speak(d, chunks=3)
    for _ in range(7):  # created, two items, output item, part, speak, one chunk
        d.core.take(d.now)
    assert d.core.view()["playback"] == {
        "generated_ms": 300,
        "sent_ms": 100,
        "played_ms": 0,
        "committed_ms": 0,
    }


def test_a_cancel_takes_back_the_audio_that_was_not_written() -> None:
    d = attached()
    speak(d, chunks=3)
    for _ in range(7):
        d.core.take(d.now)
    d.send(Cancel())
    rest = types(d.take_all())
    assert "response.output_audio.delta" not in rest
    assert rest[-2:] == ["response.done", "rate_limits.updated"]
    assert d.core.view()["playback"]["sent_ms"] == 100


def test_the_journal_never_holds_audio_that_was_taken_back() -> None:
    d = attached()
    speak(d, chunks=3)
    d.send(Cancel())
    written = d.take_all()
    d.absorb(d.core.detach(1.0, 1))
    resumed = d.core.resume(1.0, "token-1", 1)
    assert resumed.missed is not None
    assert [event.value for event in resumed.missed] == written
    assert "response.output_audio.delta" not in types(written)


def test_text_that_waits_survives_a_cancel() -> None:
    d = attached(modalities=("text",))
    d.yields(Decision(F0, 1, Action.RESPONSE), TextDelta(F0, "half"))
    d.send(Cancel())
    assert "response.output_text.delta" in types(d.take_all())


# --- reading too slowly ------------------------------------------------------------------------------

SMALL = SessionLimits(outbox=OutboxLimits(max_bytes=12_000, max_events=64, reserve_bytes=4_000))


def test_a_slow_reader_fails_its_response_and_ends_its_session() -> None:
    d = attached(limits=SMALL)
    speak(d, chunks=8)
    assert d.core.state is State.CLOSED
    payloads = d.take_all()
    tail = [t for t in types(payloads) if t in ("error", "response.done", "session.closed")]
    assert tail == ["error", "response.done", "session.closed"]
    error = next(p for p in payloads if p["type"] == "error")["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "output_backpressure")
    done = next(p for p in payloads if p["type"] == "response.done")
    assert done["response"]["status"] == "failed"
    assert done["vllm_omni"]["committed"] is False
    assert payloads[-1]["reason"] == "output_backpressure"
    assert "response.output_audio.delta" not in types(payloads)
    assert d.core.history.entries() == ()


def test_an_ending_that_still_waits_is_turned_into_a_failure() -> None:
    d = attached(limits=SMALL, modalities=("text",))
    fence = d.core.fence
    d.yields(Decision(fence, 1, Action.RESPONSE), TextDelta(fence, "said"), TurnEnd(fence))
    assert [line.text for line in d.core.history.entries()] == ["said"]
    notices(d, 200)
    payloads = d.take_all()
    done = [p for p in payloads if p["type"] == "response.done"]
    assert [p["response"]["status"] for p in done] == ["failed"]
    assert types(payloads)[-1] == "session.closed"
    assert d.core.history.entries() == (), "it enters no history"
    told = [e.fact for e in d.done if isinstance(e, BackendTell)]
    assert [(f.text, f.complete) for f in told] == [("said", True), ("", False)]  # type: ignore[union-attr]


def test_nothing_ordinary_follows_an_overflow() -> None:
    d = attached(limits=SMALL)
    notices(d, 300)
    payloads = d.take_all()
    at = types(payloads).index("error")
    assert types(payloads)[at:] == ["error", "session.closed"]
    assert sum(len(orjson.dumps(p)) for p in payloads) < 20_000


def test_close_details_are_bounded() -> None:
    d = attached()
    d.send(Close("x" * 10_000))
    assert d.take_all()[-1]["reason"] == "close_details_exceed_output_limit"


def test_the_closing_event_is_the_last_and_audio_never_follows_a_close() -> None:
    d = attached()
    speak(d, chunks=3)
    d.send(Close())
    payloads = d.take_all()
    assert "response.output_audio.delta" not in types(payloads)
    assert types(payloads)[-1] == "session.closed"
    assert not d.core.waiting


def test_a_pending_ack_after_the_end_is_no_error() -> None:
    d = attached()
    d.send(Close())
    assert not d.core.admit(AckEvents(1))
    with pytest.raises(VigilError):
        d.core.admit(PlaybackAck(1))
    with pytest.raises(VigilError):
        d.core.admit(CreateResponse())
