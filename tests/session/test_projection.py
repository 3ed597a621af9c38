"""Every session event has its wire form, and the ones that the SDK knows parse into its classes strictly."""

from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from orchestrator.session import events as ev
from orchestrator.session.backend import (
    Action,
    AudioDelta,
    Capabilities,
    Decision,
    Delegation,
    Metrics,
    SessionConfig,
    TextDelta,
    TickDone,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.commands import (
    AppendInput,
    AskQuery,
    Cancel,
    ClearOutput,
    CommitInput,
    CreateResponse,
    DeleteItem,
    PlaybackAck,
    RetrieveItem,
    TruncateItem,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import Item
from orchestrator.session.playback import Cursors
from orchestrator.session.projection import Projection
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.audio import AudioFormat, Codec
from orchestrator.wire.errors import InvalidRequest
from tests.fakes.clock import CountingIds
from tests.session.driver import Driver, make_core

SDK: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
OURS = {
    *("response.speak", "response.listen", "playback.acknowledged", "overlap.decision", "turn.event"),
    *("session.closed", "session.expired", "session.heartbeat_ack", "session.resync_required"),
    *("vigil.tick", "vigil.delegation", "vigil.notice"),
}
VOICE = Capabilities(1000, optional_input_modalities=("audio", "video"), output_modalities=("text", "audio"))
F0 = Fence()


def played(capabilities: Capabilities = VOICE, **config: Any) -> Driver:
    d = Driver(make_core(capabilities, **config))
    _, effects = d.core.attach(0.0)
    d.absorb(effects)
    return d


def strictly(payloads: list[dict[str, Any]]) -> list[str]:
    """Parse each event that the SDK knows, strictly; the types of all."""
    for payload in payloads:
        if payload["type"] not in OURS:
            parsed = SDK.validate_python(payload)
            assert parsed.type == payload["type"]
    return [payload["type"] for payload in payloads]


def test_a_text_conversation_parses_strictly() -> None:
    d = played(modalities=("text",))
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.send(AskQuery("is there smoke?", "item_q"))
    d.send(CommitInput())
    d.send(CreateResponse(metadata={"n": 1}))
    fence = d.core.fence
    d.yields(Decision(fence, 1, Action.RESPONSE, 0.8), TextDelta(fence, "yes"), TurnEnd(fence))
    d.send(RetrieveItem("item_q"))
    d.send(DeleteItem("item_q"))
    d.send(CommitInput(event_id="evt_1"))
    types = strictly(d.take_all())
    assert "response.output_text.delta" in types
    assert "conversation.item.deleted" in types


def test_a_spoken_conversation_parses_strictly() -> None:
    d = played()
    speech = InputUnit(pcm=b"\x01" * 8)
    d.send(AppendInput("a", speech, is_speech=True, duration_ms=900))
    d.send(CommitInput())
    d.yields(
        UserTranscript(F0, "hello", final=True),
        Decision(F0, 1, Action.RESPONSE),
        TextDelta(F0, "hi"),
        AudioDelta(F0, bytes(4800), 24000, ((2, 100),)),
        TurnEnd(F0),
    )
    response_id = d.of(ev.ResponseCreated)[0].response_id
    d.send(PlaybackAck(50, response_id=response_id))
    d.send(TruncateItem("item_" + response_id, 0, 50))
    d.send(RetrieveItem("item_" + response_id))
    types = strictly(d.take_all())
    assert "response.output_audio.delta" in types
    assert "conversation.item.truncated" in types


@pytest.mark.parametrize("stop", [Cancel(), ClearOutput()])
def test_a_cancelled_response_parses_strictly(stop: Any) -> None:
    d = played()
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(Decision(F0, 1, Action.RESPONSE), TextDelta(F0, "hi"), AudioDelta(F0, bytes(4800), 24000))
    d.send(stop)
    payloads = d.take_all()
    strictly(payloads)
    done = next(p for p in payloads if p["type"] == "response.done")
    assert done["response"]["status"] == "cancelled"
    assert done["response"]["output"][0]["status"] == "incomplete"


def test_reasons_that_the_sdk_does_not_know_are_ours_alone() -> None:
    d = played()
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(Decision(F0, 1, Action.RESPONSE), TextDelta(F0, "hi"))
    d.send(ClearOutput())
    done = next(p for p in d.take_all() if p["type"] == "response.done")
    assert done["response"]["status_details"] == {"type": "cancelled"}
    assert done["duplex"] == {"epoch": 0, "turn_id": 0, "reason": "output_audio_buffer_clear"}


def test_every_output_event_carries_its_fence() -> None:
    d = played(modalities=("text",))
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(Decision(F0, 1, Action.RESPONSE), TextDelta(F0, "hi"), TurnEnd(F0))
    responses = [p for p in d.take_all() if p["type"].startswith("response.")]
    assert all(p["duplex"]["epoch"] == 0 for p in responses)


def test_the_item_id_is_the_response_id_with_a_prefix_everywhere() -> None:
    d = played(modalities=("text",))
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(Decision(F0, 1, Action.RESPONSE), TextDelta(F0, "hi"), TurnEnd(F0))
    payloads = d.take_all()
    response_id = next(p for p in payloads if p["type"] == "response.created")["response_id"]
    named = [p["item"]["id"] if "item" in p else p.get("item_id") for p in payloads]
    assert {name for name in named if name} == {"item_" + response_id}


def test_creation_events_hold_no_content_even_when_delivered_late() -> None:
    d = played(modalities=("text",))
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(Decision(F0, 1, Action.RESPONSE), TextDelta(F0, "hi"), TurnEnd(F0))
    for payload in d.take_all():
        if payload["type"] in ("conversation.item.added", "conversation.item.created"):
            assert payload["item"]["content"] == []


def test_an_error_names_the_clients_event() -> None:
    d = played()
    d.send(CommitInput(event_id="evt_9"))
    d.absorb(d.core.tell(InvalidRequest("no", code="bad_event", event_id="evt_9")))
    error = next(p for p in d.take_all() if p["type"] == "error")
    assert error["error"]["event_id"] == "evt_9"
    assert error["event_id"].startswith("event_")


def project(event: ev.Event, **config: Any) -> dict[str, Any]:
    written = Projection("duplex-1", CountingIds()).written(event, SessionConfig("m", **config))
    assert written is not None and written.value["type"] == written.type
    return written.value


def test_audio_in_the_clients_format() -> None:
    delta = ev.OutputAudioDelta(F0, "r", "item_r", bytes(4800), 24000, 100, 100, (), Cursors(100))
    plain = project(delta)
    assert (plain["format"], plain["sample_rate_hz"]) == ("pcm16", 24000)
    assert plain["metadata"]["audio_duration_ms"] == 100
    assert project(delta, output_format=AudioFormat(Codec.WAV))["format"] == "wav"
    law = project(delta, output_format=AudioFormat(Codec.ULAW))
    assert (law["format"], law["sample_rate_hz"]) == ("g711_ulaw", 8000)


def test_a_tick_is_compact() -> None:
    record = {
        "tick": 7,
        "media_time_s": 3.2,
        "action": "response",
        "score": 0.5,
        "frames": 3,
        "cached_tokens": 10,
        "prompt_tokens": 20,
        "text": "not here",
    }
    payload = project(ev.TickEvent(F0, record), include=("vigil.tick",))
    assert payload == {
        "type": "vigil.tick",
        "event_id": payload["event_id"],
        "duplex": {"epoch": 0, "turn_id": 0},
        "tick": 7,
        "media_time_ms": 3200,
        "action": "response",
        "score": 0.5,
        "frames": 3,
        "coalesced": 2,
        "cached_tokens": 10,
        "prompt_tokens": 20,
    }


def test_a_listen_without_a_response_has_no_id() -> None:
    payload = project(ev.ResponseListen(F0, "model_listen", True))
    assert "response_id" not in payload
    assert "id" not in payload["response"]
    assert payload["response"]["metadata"] == {"reason": "model_listen", "model_listen": True}


def test_every_event_has_a_wire_form_of_its_own_name() -> None:
    item = Item("item_x", "user")
    cases: list[ev.Event] = [
        ev.SessionExpired("s", "idle_ttl_expired"),
        ev.SessionClosed("s", "client_close"),
        ev.ResyncRequired("s", "journal_gap"),
        ev.HeartbeatAck("s"),
        ev.ItemRetrieved(item),
        ev.ItemDeleted("item_x"),
        ev.UserSpeechStarted("item_x", 5),
        ev.UserSpeechStopped("item_x", 9),
        ev.InputCommitted(None, "item_x", {"is_speech": True}),
        ev.InputCleared(),
        ev.OverlapDecided(F0, "listen_only", "listen", "policy_listen_only", 1.0, 2.0, True, True),
        ev.TurnSignalled(F0, "user_started", "user_speaking"),
        ev.OutputCleared(F0, "r"),
        ev.PlaybackAcknowledged(F0, None, Cursors(), False, False),
        ev.NoticeEvent("engine_lost", "x"),
        ev.DelegationEvent(F0, "d", "failed", "q"),
        ev.RateLimitsUpdated(),
    ]
    for event in cases:
        assert project(event)["type"] == event.type


def test_a_delegation_reaches_the_client() -> None:
    d = played()
    d.yields(Delegation(F0, "dlg_1", "completed", "how many?", "three"))
    payload = d.take_all()[-1]
    assert (payload["status"], payload["text"]) == ("completed", "three")


def test_a_tick_that_was_not_asked_for_has_no_wire_form() -> None:
    d = played()
    d.take_all()
    d.yields(TickDone(F0, 1, (), {"tick": 1}))
    assert not d.core.waiting


def test_stage_metrics_ride_the_end_of_the_response_that_owns_them() -> None:
    d = played(modalities=("text",))
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(
        Metrics(F0, {"0": {"num_tokens_in": 99}}),  # before the response was created
        Decision(F0, 1, Action.RESPONSE),
        TextDelta(F0, "hi"),
        Metrics(F0, {"0": {"num_tokens_in": 7}}),
        Metrics(F0, {"0": {"num_tokens_in": 5}}),
        Metrics(Fence(0, 4), {"0": {"num_tokens_in": 1}}),
        TurnEnd(F0),
    )
    done = next(p for p in d.take_all() if p["type"] == "response.done")
    assert done["vllm_omni"]["stage_metrics"] == {"0": {"num_tokens_in": 12}}
    strictly([done])


def test_sums_of_an_engine_replace_what_was_known_and_its_clock_is_told() -> None:
    d = played(modalities=("text",))
    d.send(AppendInput("f", InputUnit((FrameInput(b"jpeg", 0),))))
    d.yields(
        Decision(F0, 1, Action.RESPONSE),
        TextDelta(F0, "hi"),
        Metrics(F0, {"0": {"num_tokens_in": 7}}, whole=True, request={"ttft_ms": 12.5}),
        Metrics(F0, {"0": {"num_tokens_in": 9}}, whole=True, request={"ttfp_ms": 80.0}),
        TurnEnd(F0),
    )
    done = next(p for p in d.take_all() if p["type"] == "response.done")
    assert done["vllm_omni"]["stage_metrics"] == {"0": {"num_tokens_in": 9}}
    assert done["vllm_omni"]["response_request_metrics"] == {"ttft_ms": 12.5, "ttfp_ms": 80.0}
    strictly([done])


def test_ticks_are_told_only_to_whom_asks_and_only_decisions_are_ticks() -> None:
    projection = Projection("duplex-1", CountingIds())
    tick = ev.TickEvent(F0, {"tick": 1, "action": "silence"})
    dropped = ev.TickEvent(F0, {"tick": 1, "action": "silence", "status": "dropped"})
    asking = SessionConfig("m", include=("vigil.tick",))
    assert projection.written(tick, SessionConfig("m")) is None
    assert projection.written(tick, asking) is not None
    assert projection.written(dropped, asking) is None
