"""Server events: the SDK's own strict types accept them, and the older dialect gets only its own names."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter

from orchestrator.wire import items as i
from orchestrator.wire import server as s
from orchestrator.wire.dialect import Dialect, dialect_of, translate

GA: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
ASSISTANT = i.MessageItem(
    id="item_resp-1",
    role="assistant",
    content=[i.OutputText(text="Hi"), i.OutputAudio(transcript="Hi", audio_duration_ms=10)],
)
USER = i.MessageItem(
    id="item_1",
    role="user",
    content=[i.InputText(text="?"), i.InputAudio(transcript=None), i.InputImage()],
)
CALL = i.FunctionCallItem(id="item_2", call_id="c", name="f", arguments="{}")
SESSION = {"type": "realtime", "id": "duplex-1", "model": "m", "output_modalities": ["text"]}
OF = {"response_id": "resp-1", "item_id": "item_resp-1"}


def done(status: Any, reason: str | None = None) -> s.ResponseDone:
    item = ASSISTANT.model_copy(update={"status": "completed" if status == "completed" else "incomplete"})
    details = i.status_details(status, reason)
    return s.ResponseDone(
        event_id="e",
        response_id="resp-1",
        response=i.Response(
            id="resp-1", status=status, status_details=dict(details) if details else None,
            output=[item], output_modalities=["text"], metadata={"a": "b"},
        ),
    )  # fmt: skip


GA_EVENTS: list[s.ServerEvent] = [
    s.SessionCreated(event_id="e", session=SESSION, attachment_generation=1, resume_token="t"),
    s.SessionUpdated(event_id="e", session=SESSION),
    s.ResponseCreated(
        event_id="e", response_id="resp-1", response=i.Response(id="resp-1", status="in_progress")
    ),
    s.ItemAdded(event_id="e", item=USER),
    s.ItemCreated(event_id="e", previous_item_id="item_0", item=ASSISTANT),
    s.ItemDone(event_id="e", item=ASSISTANT),
    s.ItemAdded(event_id="e", item=CALL),
    s.ItemRetrieved(event_id="e", item=USER),
    s.ItemDeleted(event_id="e", item_id="i"),
    s.ItemTruncated(event_id="e", item_id="i", content_index=0, audio_end_ms=5),
    s.TranscriptionCompleted(
        event_id="e", item_id="i", transcript="t", usage={"type": "duration", "seconds": 1.0}
    ),
    s.TranscriptionDelta(event_id="e", item_id="i", delta="t"),
    s.OutputItemAdded(event_id="e", response_id="resp-1", item=ASSISTANT),
    s.OutputItemDone(event_id="e", response_id="resp-1", item=ASSISTANT),
    s.ContentPartAdded(event_id="e", **OF, part=i.TextPart()),
    s.ContentPartDone(event_id="e", **OF, part=i.AudioPart(transcript="x")),
    s.TextDelta(event_id="e", **OF, delta="a", duplex=i.Mark(epoch=0, turn_id=0)),
    s.TextDone(event_id="e", **OF, text="a"),
    s.AudioDelta(event_id="e", **OF, delta="AAAA", format="pcm16", sample_rate_hz=24000),
    s.AudioDone(event_id="e", **OF),
    s.TranscriptDelta(event_id="e", **OF, delta="a"),
    s.TranscriptDone(event_id="e", **OF, transcript="a"),
    done("completed"),
    done("cancelled", "client_cancelled"),
    done("cancelled", "barge_in"),
    done("failed", "output_backpressure"),
    done("incomplete", "engine_broken"),
    s.RateLimits(event_id="e"),
    s.SpeechStarted(event_id="e", audio_start_ms=1, item_id="i"),
    s.SpeechStopped(event_id="e", audio_end_ms=1, item_id="i"),
    s.InputCommitted(event_id="e", item_id="i"),
    s.InputCleared(event_id="e"),
    s.OutputCleared(event_id="e", response_id="r"),
    s.FunctionArgumentsDelta(event_id="e", response_id="r", item_id="i", call_id="c", delta="{"),
    s.FunctionArgumentsDone(
        event_id="e", response_id="r", item_id="i", call_id="c", name="f", arguments="{}"
    ),
    s.ErrorEvent(event_id="e", error={"type": "server_error", "code": "c", "message": "m"}),
]


@pytest.mark.parametrize("event", GA_EVENTS, ids=lambda e: e.type)
def test_the_sdk_accepts_every_event_strictly(event: s.ServerEvent) -> None:
    written = event.written()
    parsed = GA.validate_python(written.numbered(7).value, strict=True)
    assert parsed.type == event.type == written.type
    assert written.numbered(7).value == {**written.value, "server_event_seq": 7}
    assert written.size == len(written.text.encode())
    assert GA.validate_json(written.text).type == event.type


def test_every_event_of_the_sdk_that_we_have_is_tried() -> None:
    ours = {e.type for e in GA_EVENTS}
    own = {
        "session.resumed", "session.replaced", "session.resync_required", "session.closed",
        "session.expired", "session.heartbeat_ack", "response.speak", "response.listen",
        "playback.acknowledged", "overlap.decision", "turn.event", "vigil.tick", "vigil.delegation",
        "vigil.notice", "vigil.playback",
    }  # fmt: skip
    every = {
        c.model_fields["type"].default
        for c in [*s.ServerEvent.__subclasses__(), *s._OfResponse.__subclasses__()]
        if isinstance(c.model_fields["type"].default, str)
    }
    assert every == own | ours


def test_nulls_are_sent_where_the_protocol_wants_them() -> None:
    assert s.ItemAdded(event_id="e", item=USER).written().value["previous_item_id"] is None
    assert "transcript" not in s.ItemAdded(event_id="e", item=USER).written().value["item"]["content"][1]


@pytest.mark.parametrize("event", GA_EVENTS, ids=lambda e: e.type)
def test_the_beta_dialect_has_only_its_own_names(event: s.ServerEvent) -> None:
    text = repr(translate(event.written().value, Dialect.BETA))
    assert "output_audio'" not in text.replace("output_audio_buffer", "")
    assert "response.output_" not in text.replace("response.output_item", "")
    assert translate(event.written().value, Dialect.GA) == event.written().value


def test_the_dialect_is_asked_for_by_header() -> None:
    assert dialect_of({}) is Dialect.GA
    assert dialect_of({"openai-beta": "realtime=v1"}) is Dialect.BETA
    assert dialect_of({"openai-beta": "assistants=v2, realtime = v1"}) is Dialect.BETA
    assert dialect_of({"openai-beta": "realtime=v2"}) is Dialect.GA
