"""The command parser: aliases, redirects, and errors with stable codes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.wire import client
from orchestrator.wire.client import ALIASES, MAX_FRAME_BYTES, NAMES, command_of, parse_command
from orchestrator.wire.errors import InvalidRequest, TooLarge, VigilError


def test_every_alias_names_a_command() -> None:
    assert set(ALIASES.values()) <= NAMES
    assert not set(ALIASES) & NAMES
    assert client.SIGNAL_REDIRECTS <= NAMES
    assert len(NAMES) == 20


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{not json", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        ("[1]", "bad_event"),
        ("3", "bad_event"),
        ('{"kind":"x"}', "bad_event"),
        ('{"type":7}', "bad_event"),
        ('{"type":"session.dance","event_id":"e1"}', "unknown_event"),
        ('{"type":"playback.ack","event_id":"e1"}', "bad_event"),
        ('{"type":"playback.ack","played_ms":"12"}', "bad_event"),
        ('{"type":"playback.ack","played_ms":true}', "bad_event"),
        ('{"type":"conversation.item.create","item":[]}', "bad_event"),
        ('{"type":"input.text.append","text":null}', "bad_event"),
        ('{"type":"input_audio_buffer.commit","response_create":"yes"}', "bad_event"),
        ('{"type":"input_audio_buffer.append","audio":7}', "bad_event"),
        ('{"type":"response.create","response":[]}', "bad_event"),
    ],
)
def test_bad_frames(frame: str | bytes, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_command(frame)
    assert caught.value.code == code
    if "e1" in str(frame):
        assert caught.value.event_id == "e1"


def test_a_frame_over_the_limit() -> None:
    parse_command(json.dumps({"type": "session.heartbeat", "pad": "x" * (MAX_FRAME_BYTES - 60)}))
    with pytest.raises(TooLarge) as caught:
        parse_command("x" * (MAX_FRAME_BYTES + 1))
    assert caught.value.code == "event_too_large"


def parsed(**event: Any) -> Any:
    return command_of(event)


def test_session_body_is_the_object_or_the_event() -> None:
    assert parsed(type="session.update", session={"voice": "x"}).session == {"voice": "x"}
    assert parsed(type="session.create", voice="x", event_id="e").session == {"voice": "x"}
    assert parsed(type="session.update", session=None, voice="x").session == {"voice": "x"}


def test_append_aliases_and_hints() -> None:
    append = parsed(type="input.audio.append", delta="AAAA", sample_rate=8000, frame_id="f1")
    assert (append.audio, append.sample_rate_hz, append.frame_ids) == ("AAAA", 8000, ["f1"])
    assert append.container == "wav"
    assert parsed(type="push_chunk", audio="AAAA", format="pcm16").container is None
    plain = parsed(type="input_audio_buffer.append", audio="AAAA", is_speech="loud", vad=[1], overlap=3)
    assert (plain.is_speech, plain.vad, plain.overlap_action, plain.container) == (None, None, None, None)
    hinted = parsed(
        type="input_audio_buffer.append", audio="A", overlap="drop", text="yes", vad={"is_speech": True}
    )
    assert (hinted.overlap_action, hinted.transcript, hinted.vad.is_speech) == ("drop", "yes", True)


def test_commit_defaults() -> None:
    assert not parsed(type="input_audio_buffer.commit").create_response
    assert parsed(type="input.commit").create_response
    assert not parsed(type="input.commit", response_create=False).create_response
    assert parsed(type="input_audio_buffer.commit", create_response=True).create_response


def test_turn_signal_redirects() -> None:
    cancel = parsed(type="signal_turn", event="response.cancel", payload={"response_id": "r"}, event_id="e")
    assert (cancel.type, cancel.response_id, cancel.event_id) == ("response.cancel", "r", "e")
    assert parsed(type="turn.signal", event="user_started").event == "user_started"
    assert parsed(type="turn.signal", event="barge_in").type == "barge_in"


@pytest.mark.parametrize(("alias", "name"), sorted(ALIASES.items()))
def test_an_alias_behaves_as_its_canonical_name(alias: str, name: str) -> None:
    fields = {"text": "t", "played_ms": 1, "event": "user_started", "session": {}, "format": "pcm16"}
    ours, theirs = command_of({"type": alias, **fields}), command_of({"type": name, **fields})
    if alias != "input.commit":
        assert ours == theirs
    assert ours.type == name


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
FIELDS = sorted({f for m in client.Command.__subclasses__() for f in m.model_fields} | {"delta", "overlap"})


@given(
    st.sampled_from(sorted(NAMES | set(ALIASES))),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4),
)
def test_any_json_is_parsed_or_refused_with_a_typed_error(name: str, fields: dict[str, Any]) -> None:
    try:
        command_of({**fields, "type": name})
    except VigilError as error:
        assert error.code in {"bad_event", "unknown_event"}
