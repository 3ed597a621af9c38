"""What each event of the contract becomes, under its present name and its older one."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bridges.duplex_client.link import (
    AudioChunk,
    Heard,
    InputCommitted,
    Listening,
    ResponseCreated,
    ResponseDone,
    Speaking,
    SpokenText,
    StageMetrics,
    ToolCall,
    UserSpeech,
)
from tests.bridges.duplex_client.saying import TURN, Talk

PCM = base64.b64encode(b"\1\0\2\0").decode()
STAGES = {"0": {"num_tokens_in": 12}}


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        ("response.speak", {}, [Speaking("r1")]),
        (
            "response.output_audio.delta",
            {"delta": PCM, "format": "pcm16", "sample_rate_hz": 24000},
            [AudioChunk("r1", b"\1\0\2\0", 24000)],
        ),
        (
            "response.audio.delta",
            {"delta": PCM, "sample_rate_hz": 22050},
            [AudioChunk("r1", b"\1\0\2\0", 22050)],
        ),
        (
            "response.output_audio.delta",
            {
                "delta": PCM,
                "metadata": {
                    "end_of_turn": True,
                    "audio_text_marks": [{"text_chars": 3, "audio_end_ms": 90.5}],
                },
            },
            [AudioChunk("r1", b"\1\0\2\0", 24000, ((3, 90),), True)],
        ),
        ("response.output_audio.delta", {"delta": ""}, []),
        (
            "response.output_audio.delta",
            {"delta": "", "metadata": {"end_of_turn": True}},
            [AudioChunk("r1", b"", 24000, (), True)],
        ),
        ("response.output_audio_transcript.delta", {"delta": "hi"}, [SpokenText("r1", "hi")]),
        ("response.audio_transcript.delta", {"delta": "hi"}, [SpokenText("r1", "hi")]),
        ("response.output_audio_transcript.delta", {"delta": ""}, []),
        ("response.output_text.delta", {"delta": "hi"}, [SpokenText("r1", "hi", False)]),
        ("response.text.delta", {"delta": "hi"}, [SpokenText("r1", "hi", False)]),
        ("response.output_audio.done", {}, []),
        ("response.audio.done", {}, []),
    ],
)
def test_of_a_response(type_: str, fields: dict[str, Any], expected: list[object]) -> None:
    talk = Talk()
    talk.respond()
    assert talk.hear(type_, response_id="r1", **fields) == expected


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        ("input_audio_buffer.speech_started", {"audio_start_ms": 40, "item_id": "i"}, UserSpeech(True, 40)),
        ("input_audio_buffer.speech_stopped", {"audio_end_ms": 90, "item_id": "i"}, UserSpeech(False, 90)),
        (
            "input_audio_buffer.committed",
            {"item_id": "i", "event": {"no_response": True}},
            InputCommitted("i", {"no_response": True}),
        ),
        (
            "conversation.item.input_audio_transcription.completed",
            {"item_id": "i", "transcript": "hello"},
            Heard("i", "hello"),
        ),
        (
            "response.listen",
            {"response": {"metadata": {"reason": "model_listen", "model_listen": True}}},
            Listening(None, "model_listen", True, {"reason": "model_listen", "model_listen": True}),
        ),
        ("response.listen", {"response": {}}, Listening(None, None, False, {})),
    ],
)
def test_of_the_session(type_: str, fields: dict[str, Any], expected: object) -> None:
    assert Talk().hear(type_, **fields) == [expected]


@pytest.mark.parametrize(
    "type_",
    ["rate_limits.updated", "turn.event", "overlap.decision", "playback.acknowledged", "duplex.something"],
)
def test_known_and_unread(type_: str) -> None:
    talk = Talk()
    assert not talk.hear(type_)
    assert not talk.protocol.counts["unknown"]


def test_unknown_events_are_dropped_and_counted() -> None:
    talk = Talk()
    assert not talk.hear("session.dreamt", anything=1)
    assert talk.protocol.counts["unknown"] == 1


def test_a_response_is_told_with_its_next_event_and_once() -> None:
    talk = Talk()
    assert not talk.hear("response.created", response={"id": "r1"})
    assert talk.hear("response.speak", response_id="r1") == [ResponseCreated("r1"), Speaking("r1")]
    assert not talk.hear("response.speak", response_id="r1")
    assert not talk.hear("response.created", response_id="r1", response={"id": "r1"})


CANCELLED = {"status": "cancelled", "status_details": {"reason": "client_cancelled"}}
FAILED = {"status": "failed", "status_details": {"error": {"code": "engine_error"}}}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"status": "completed", "status_details": None}, ("completed", None)),
        (CANCELLED, ("cancelled", "client_cancelled")),
        (FAILED, ("failed", "engine_error")),
        ({"status": "exploded"}, ("failed", "bad_engine_event")),
        ({}, ("failed", "bad_engine_event")),
    ],
)
def test_ends(said: dict[str, Any], expected: tuple[str, str | None]) -> None:
    talk = Talk()
    talk.respond()
    assert talk.hear("response.done", response_id="r1", response=said) == [ResponseDone("r1", *expected)]
    assert not talk.hear("response.output_text.delta", response_id="r1", delta="late")


def test_nothing_comes_of_a_response_that_is_over() -> None:
    talk = Talk()
    talk.respond()
    talk.hear("response.done", response_id="r1", response={"status": "cancelled"})
    assert not talk.hear("response.output_audio.delta", response_id="r1", delta=PCM)
    assert not talk.hear("response.done", response_id="r1", response={"status": "completed"})
    assert not talk.hear("response.output_audio.delta", response_id="r9", delta=PCM)
    assert talk.protocol.counts["late"] == 2
    assert talk.protocol.counts["unknown_response"] == 1


def test_a_listen_that_names_a_response_ends_it() -> None:
    talk = Talk()
    talk.respond()
    listen = {"id": "r1", "metadata": {"reason": "continuation_limit", "model_listen": False}}
    (event,) = talk.hear("response.listen", response_id="r1", response=listen)
    assert isinstance(event, Listening) and event.response_id == "r1"
    assert not talk.hear("response.done", response_id="r1", response={"status": "completed"})


def test_in_turn_mode_the_model_may_speak_on_after_a_listen() -> None:
    talk = Talk(TURN)
    talk.respond()
    (event,) = talk.hear("response.listen", response_id="r1", response={"id": "r1", "metadata": {}})
    assert isinstance(event, Listening) and event.response_id is None
    assert talk.hear("response.output_audio.delta", response_id="r1", delta=PCM)
    assert talk.hear("response.done", response_id="r1", response={"status": "completed"}) == [
        ResponseDone("r1", "completed")
    ]


@pytest.mark.parametrize(
    "place",
    [
        {"vllm_omni": {"stage_metrics": STAGES}},
        {"metadata": {"vllm_omni": {"stage_metrics": STAGES}}},
        {"vllm_omni": {"stage_metrics": STAGES}, "metadata": {"vllm_omni": {"stage_metrics": STAGES}}},
    ],
    ids=["top", "metadata", "both"],
)
def test_metrics_come_from_each_place_once_and_before_their_event(place: dict[str, Any]) -> None:
    talk = Talk()
    talk.respond()
    told = talk.hear("response.output_audio.delta", response_id="r1", delta=PCM, **place)
    assert told == [StageMetrics("r1", STAGES), AudioChunk("r1", b"\1\0\2\0", 24000)]


def test_how_soon_it_answered_comes_with_its_announcement_and_with_its_sound() -> None:
    talk = Talk()
    first = {"source": "server_monotonic_request_start", "ttft_ms": 12.5, "other": 1}
    metadata = {"duplex_event": {"response_request_metrics": first}}
    assert talk.hear("response.created", response_id="r1", response={"id": "r1", "metadata": metadata}) == []
    later = {"vllm_omni": {"response_request_metrics": {"ttfp_ms": 80.0}}}
    told = talk.hear("response.output_audio.delta", response_id="r1", delta=PCM, metadata=later)
    assert told == [
        ResponseCreated("r1"),
        StageMetrics("r1", {}, {"source": "server_monotonic_request_start", "ttft_ms": 12.5}),
        StageMetrics("r1", {}, {"ttfp_ms": 80.0}),
        AudioChunk("r1", b"\1\0\2\0", 24000),
    ]


def test_metrics_of_an_end() -> None:
    talk = Talk()
    talk.respond()
    said = {"status": "completed", "metadata": {"vllm_omni": {"stage_metrics": STAGES}}}
    told = talk.hear("response.done", response_id="r1", response=said)
    assert told == [StageMetrics("r1", STAGES), ResponseDone("r1", "completed")]


def test_a_tools_own_response_is_not_told() -> None:
    talk = Talk()
    item = {"id": "i", "type": "function_call", "call_id": "c", "name": "look"}
    told = talk.hear("response.created", response_id="r1", response={"id": "r1"})
    told += talk.hear("conversation.item.added", item=item)
    told += talk.hear("response.output_item.added", response_id="r1", item=item)
    told += talk.hear("response.function_call_arguments.delta", response_id="r1", call_id="c", delta="{}")
    told += talk.hear("response.function_call_arguments.done", response_id="r1", call_id="c", arguments="{}")
    told += talk.hear("response.done", response_id="r1", response={"status": "completed"})
    assert told == [ToolCall("c", "look", "{}")]


def test_a_tool_call_may_name_its_tool_itself() -> None:
    talk = Talk()
    talk.hear("response.created", response_id="r1", response={"id": "r1"})
    told = talk.hear(
        "response.function_call_arguments.done", response_id="r1", call_id="c", arguments="{}", name="look"
    )
    assert told == [ToolCall("c", "look", "{}")]
