"""Nothing an engine may say raises; what breaks the contract is told as ``bad_engine_event``."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridges.duplex_client.link import EngineFault, LinkEnded
from bridges.duplex_client.protocol import _HANDLERS, _OF_RESPONSES
from tests.bridges.duplex_client.saying import Talk


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "7", '"x"', "{}", '{"type": 7}', '{"type": null}', "\ud7ff{", "NaN"]
)
def test_not_an_event(text: str) -> None:
    (fault,) = Talk().raw(text)
    assert isinstance(fault, EngineFault) and fault.code == "bad_engine_event"


def test_binary_is_ignored_and_counted() -> None:
    talk = Talk()
    assert not talk.raw(b"\0\1")
    assert talk.protocol.counts["binary"] == 1


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        ("session.updated", {}),
        ("session.updated", {"session": []}),
        ("session.resumed", {"session": {}, "resume_token": "t"}),
        ("response.created", {}),
        ("response.created", {"response_id": 7}),
        ("response.speak", {}),
        ("response.output_audio.delta", {"response_id": "r1"}),
        ("response.output_audio.delta", {"response_id": "r1", "delta": "*"}),
        ("response.output_audio.delta", {"response_id": "r1", "delta": 7}),
        ("response.output_text.delta", {"response_id": "r1"}),
        ("response.output_text.delta", {"response_id": "r1", "delta": 7}),
        ("response.listen", {}),
        ("response.listen", {"response": 7}),
        ("response.done", {}),
        ("response.function_call_arguments.done", {"response_id": "r1", "call_id": "c", "arguments": "{}"}),
        ("response.function_call_arguments.done", {"response_id": "r1", "call_id": "", "name": "n"}),
        ("input_audio_buffer.committed", {}),
        ("input_audio_buffer.speech_started", {}),
        ("input_audio_buffer.speech_started", {"audio_start_ms": True}),
        ("input_audio_buffer.speech_stopped", {"audio_end_ms": -1}),
        ("conversation.item.input_audio_transcription.completed", {"item_id": "i"}),
        ("error", {}),
        ("error", {"error": {}}),
        ("error", {"error": {"code": 7}}),
    ],
)
def test_fields(type_: str, fields: dict[str, Any]) -> None:
    talk = Talk()
    talk.respond()
    (fault,) = talk.hear(type_, **fields)
    assert isinstance(fault, EngineFault) and fault.code == "bad_engine_event"
    assert type_ in fault.message
    assert talk.protocol.counts["malformed"] == 1


@pytest.mark.parametrize("seq", [0, -1, 1.5, "2", True, [], {}])
def test_numbers(seq: Any) -> None:
    talk = Talk()
    (fault,) = talk.hear("turn.event", seq=seq)
    assert isinstance(fault, EngineFault) and fault.code == "bad_engine_event"


def test_a_malformed_event_counts_as_seen() -> None:
    talk = Talk()
    talk.hear("response.created", response_id=7)
    assert not talk.hear("turn.event")
    assert talk.protocol.broken is None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "session", "session_id", "resume_token", "response", "response_id", "item", "item_id", "delta",
        "format", "sample_rate_hz", "metadata", "vllm_omni", "error", "code", "reason", "event",
        "call_id", "name", "arguments", "audio_start_ms", "audio_end_ms", "transcript", "audio",
    ]
)  # fmt: skip
TYPES = st.sampled_from(sorted({*_HANDLERS, *_OF_RESPONSES, "session.updated"}))


@settings(max_examples=400)
@given(
    st.sampled_from(["opening", "live", "resuming"]),
    st.lists(st.tuples(TYPES, st.dictionaries(KEYS, JSON, max_size=5)), max_size=6),
)
def test_nothing_raises_in_any_phase(phase: str, said: list[tuple[str, dict[str, Any]]]) -> None:
    """And the link ends at most once, as the last event."""
    talk = Talk(live=phase != "opening")
    talk.write()
    if phase == "live":
        talk.respond()
    if phase == "resuming":
        talk.protocol.lost("broke")
        talk.protocol.connected(talk.now)
        talk.write()
    told = talk.events()
    for type_, fields in said:
        event = {**fields, "type": type_}
        told += talk.raw(orjson.dumps(event).decode())
    endings = [event for event in told if isinstance(event, LinkEnded)]
    assert len(endings) <= 1
    assert not endings or told[-1] is endings[0]


@given(st.text(max_size=200) | st.binary(max_size=50))
def test_any_text(text: str | bytes) -> None:
    try:
        event = orjson.loads(text)
        proper = isinstance(event, dict) and isinstance(event.get("type"), str)
    except orjson.JSONDecodeError:
        proper = False
    told = Talk().raw(text)
    if not proper and isinstance(text, str):
        assert [type(event) for event in told] == [EngineFault]
