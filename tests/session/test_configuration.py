"""The client's session object: precedence of keys, defaults, refusals with their codes, what is echoed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.backend import Capabilities, SessionConfig, TurnDetection
from orchestrator.session.configuration import MAX_ECHO_BYTES, opened, parse_turn_detection, updated
from orchestrator.wire.audio import AudioFormat, Codec
from orchestrator.wire.errors import InvalidRequest, VigilError

CAPABILITIES = Capabilities(1000, optional_input_modalities=("audio", "video"))
BASE = SessionConfig("m")


def open_(body: dict[str, Any], capabilities: Capabilities = CAPABILITIES) -> SessionConfig:
    return opened(body, BASE, capabilities)


def test_an_empty_object_gives_the_defaults() -> None:
    config = open_({})
    assert config == BASE
    assert (config.overlap_short_ack_ms, config.overlap_barge_in_ms) == (700, 1200)
    assert (config.overlap_silence_rms, config.idle_timeout_s) == (0.003, 300)
    assert config.overlap_policy == "listen_only"
    assert config.input_format == AudioFormat(Codec.PCM16, 16000)


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        ({"modalities": ["text"], "output_modalities": ["audio"]}, "modalities", ("text",)),
        ({"modalities": [], "output_modalities": ["audio"]}, "modalities", ("audio",)),
        ({"voice": "a", "audio": {"output": {"voice": "b"}}}, "voice", "b"),
        ({"max_tokens": 5, "max_response_output_tokens": 7}, "max_output_tokens", 7),
        ({"max_output_tokens": "inf"}, "max_output_tokens", None),
        ({"max_output_tokens": -3}, "max_output_tokens", None),
        ({"overlap_short_ack_ms": 1, "extra_body": {"overlap_short_ack_ms": 2}}, "overlap_short_ack_ms", 2.0),
        ({"extra_body": {"auto_response": False}}, "auto_response", False),
        ({"extra_body": {"full_duplex": True}}, "auto_response", True),
        ({"temperature": "hot"}, "temperature", None),
        ({"temperature": True}, "temperature", None),
        ({"temperature": -0.1}, "temperature", None),
        ({"temperature": 1e308}, "temperature", None),
        ({"temperature": 2}, "temperature", 2),
        ({"instructions": "be brief"}, "instructions", "be brief"),
        ({"extra_body": {"persona": "silent"}}, "persona", "silent"),
        ({"max_pixels": 65536, "extra_body": {"max_pixels": 131072}}, "max_pixels", 131072),
        ({"max_pixels": "large"}, "max_pixels", None),
        ({"include": ["vigil.tick", 3]}, "include", ("vigil.tick",)),
        ({"idle_timeout_s": 5}, "idle_timeout_s", 5.0),
        ({"overlap_policy": "nonsense"}, "overlap_policy", "listen_only"),
    ],
)
def test_precedence_and_lenience(body: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(open_(body), field) == value


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"input_audio_format": "s16le"}, AudioFormat(Codec.PCM16, 16000)),
        (
            {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}},
            AudioFormat(Codec.PCM16, 24000),
        ),
        ({"sample_rate_hz": 48000, "sample_rate": 8000}, AudioFormat(Codec.PCM16, 48000)),
        ({"audio": {"input": {"sample_rate": 44100}}}, AudioFormat(Codec.PCM16, 44100)),
        ({"input_audio_format": "audio/pcmu"}, AudioFormat(Codec.ULAW, None)),
        ({"input_audio_format": "g711_alaw", "sample_rate": 16000}, AudioFormat(Codec.ALAW, 16000)),
    ],
)
def test_input_formats(body: dict[str, Any], expected: AudioFormat) -> None:
    assert open_(body).input_format == expected


def test_output_formats() -> None:
    assert open_({"output_audio_format": "wav"}).output_format == AudioFormat(Codec.WAV)
    assert open_({"response_format": "pcm"}).output_format == AudioFormat(Codec.PCM16)
    nested = {"audio": {"output": {"format": {"type": "audio/pcmu"}, "sample_rate_hz": 16000}}}
    assert open_(nested).output_format == AudioFormat(Codec.ULAW, 16000)


BAD = [
    ({"input_audio_format": "mp3"}, "unsupported_audio_format", "input_audio_format"),
    ({"output_audio_format": "opus"}, "unsupported_audio_format", "output_audio_format"),
    ({"turn_detection": {"type": "semantic_vad"}}, "unsupported_turn_detection", "turn_detection"),
    ({"overlap_policy": "barge_in_on_speech"}, "unsupported_turn_detection", "overlap_policy"),
    (
        {"overlap_policy": "listen_only", "turn_detection": {"type": "server_vad"}},
        "unsupported_turn_detection",
        "overlap_policy",
    ),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD)
def test_at_open_value_errors_share_one_code_and_name_the_culprit(
    body: dict[str, Any], code: str, param: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        open_(body)
    assert (refused.value.code, refused.value.param) == ("invalid_session_config", param)


@pytest.mark.parametrize(("body", "code", "param"), BAD)
def test_in_an_update_they_keep_their_own(body: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        updated(body, BASE, CAPABILITIES)
    assert (refused.value.code, refused.value.param) == (code, param)


def test_a_doubly_wrong_object_reports_the_format() -> None:
    with pytest.raises(InvalidRequest) as refused:
        open_({"turn_detection": {"type": "nope"}, "input_audio_format": "mp3"})
    assert refused.value.param == "input_audio_format"


@pytest.mark.parametrize(
    "detection",
    [
        {"type": "server_vad", "threshold": 0.15},
        {"type": "server_vad", "threshold": 1.01},
        {"type": "server_vad", "threshold": float("nan")},
        {"type": "server_vad", "threshold": True},
        {"type": "server_vad", "prefix_padding_ms": -1},
        {"type": "server_vad", "silence_duration_ms": "500"},
        {"type": "server_vad", "foo": 1},
        {"type": "server_vad", "interrupt_response": False},
        {"type": "server_vad", "create_response": "yes"},
        {"type": "semantic_vad"},
        {},
        "server_vad",
        [],
    ],
)
def test_refused_detectors(detection: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_turn_detection(detection)
    assert refused.value.code == "unsupported_turn_detection"


def test_a_plain_server_vad_gets_its_defaults_and_its_policy() -> None:
    config = open_({"turn_detection": {"type": "server_vad"}})
    assert config.turn_detection == TurnDetection(0.5, 300, 500, 96, True)
    assert config.overlap_policy == "barge_in_on_speech"
    floor = parse_turn_detection({"type": "server_vad", "min_speech_duration_ms": 1, "idle_timeout_ms": 9})
    assert floor is not None
    assert floor.min_speech_duration_ms == 32


def test_the_nested_detector_wins_and_null_means_listen_only() -> None:
    body = {"turn_detection": {"type": "server_vad"}, "audio": {"input": {"turn_detection": None}}}
    config = open_(body)
    assert config.turn_detection is None
    assert config.overlap_policy == "listen_only"


def test_an_update_without_the_key_leaves_the_detector() -> None:
    current = open_({"turn_detection": {"type": "server_vad"}})
    assert updated({"instructions": "x"}, current, CAPABILITIES).turn_detection == current.turn_detection
    assert updated({"turn_detection": None}, current, CAPABILITIES).overlap_policy == "listen_only"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "other"}, "model_update_unsupported"),
        ({"ref_audio": "data:..."}, "ref_audio_update_unsupported"),
        ({"extra_body": {"tts_ref_audio": "x"}}, "ref_audio_update_unsupported"),
    ],
)
def test_what_an_update_cannot_change(body: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        updated(body, BASE, CAPABILITIES)
    assert refused.value.code == code


def test_reserved_keys_are_named_sorted() -> None:
    capabilities = Capabilities(1000, reserved_keys=("b_key", "nvc_*"))
    with pytest.raises(InvalidRequest) as refused:
        open_({"extra_body": {"nvc_x": 1, "b_key": 2, "fine": 3}}, capabilities)
    assert refused.value.code == "invalid_duplex_runtime_config"
    assert "b_key, nvc_x" in refused.value.message


def test_client_tools_are_refused_with_a_reason() -> None:
    with pytest.raises(VigilError) as refused:
        open_({"tools": [{"name": "x"}]})
    assert refused.value.code == "unsupported_tools"
    assert open_({"tools": []}) is not None
    assert open_({"tools": [{"name": "x"}]}, Capabilities(1000, client_tools=True)).echo["tools"]


def test_unknown_keys_are_echoed_and_a_reference_voice_is_not() -> None:
    config = open_(
        {"tracing": "auto", "mine": [1], "ref_audio": "data:" + "x" * 1000, "extra_body": {"k": 1}}
    )
    assert config.echo == {"tracing": "auto", "mine": [1]}
    assert config.extra_body == {"k": 1, "ref_audio": "data:" + "x" * 1000}


def test_the_echo_is_bounded() -> None:
    config = open_({"small": 1, "huge": "x" * MAX_ECHO_BYTES})
    assert config.echo == {"small": 1}


def test_a_number_too_large_to_write_is_not_echoed() -> None:
    assert open_({"big": 2**70, "fine": 1}).echo == {"fine": 1}


def test_extra_body_is_merged_key_by_key() -> None:
    current = open_({"extra_body": {"a": 1, "b": 2}})
    assert updated({"extra_body": {"b": 3}}, current, CAPABILITIES).extra_body == {"a": 1, "b": 3}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *("model", "modalities", "instructions", "voice", "audio", "turn_detection", "overlap_policy"),
        *("sample_rate", "include", "tools", "speed", "max_tokens", "temperature", "extra_body", "seed"),
        *("idle_timeout_s", "input_audio_format", "output_audio_format"),
    ]
)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_object_is_taken_or_refused_with_a_code(body: dict[str, Any]) -> None:
    try:
        config = open_(body)
    except InvalidRequest as refused:
        assert refused.code in {
            "invalid_session_config",
            "unsupported_response_modality",
            "unsupported_tools",
        }
    else:
        assert config.model
        assert config.idle_timeout_s >= 0
