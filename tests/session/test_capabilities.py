"""The capabilities object: all forty fields, and the columns of the contract that tell backends apart."""

import re

from orchestrator.session.backend import Capabilities
from orchestrator.session.capabilities import ENGINE_TRAITS, capabilities_payload

REPLAY = Capabilities(chunk_period_ms=1000, optional_input_modalities=("video", "audio"))
NATIVE = Capabilities(
    chunk_period_ms=1000,
    required_input_modalities=("audio",),
    optional_input_modalities=("video",),
    supports_image_input=False,
    supports_text_only_turn=False,
    target_barge_in_latency_ms=1000,
    input_modes=("append_audio_chunk",),
    adapter_patterns=("scheduler_data_plane",),
    engine_traits=ENGINE_TRAITS,
    stage_handoff_transport="scheduler_data_plane",
    max_sessions=4,
)


def test_there_are_forty_fields() -> None:
    payload = capabilities_payload(REPLAY)
    assert len(payload) == 40
    assert sum(re.match(r"supports_|requires_", name) is not None for name in payload) == 30


def test_a_replay_backend() -> None:
    payload = capabilities_payload(REPLAY)
    assert payload["implementation_level"] == "model_native_duplex"
    assert payload["input_modes"] == ["reencode_context", "replace_latest_chunk"]
    assert payload["adapter_patterns"] == ["context_replay"]
    assert payload["optional_input_modalities"] == ["audio", "video"]
    assert payload["required_input_modalities"] == []
    assert payload["supports_reencode_context"]
    assert payload["supports_replace_latest_chunk"]
    assert not payload["supports_model_internal_state"]
    assert not payload["requires_model_runner_kv"]
    assert payload["target_barge_in_latency_ms"] is None


def test_a_native_backend() -> None:
    payload = capabilities_payload(NATIVE)
    for name in ("model_internal_state", "stage_resumption", "core_resumable_request", "multi_session"):
        assert payload[f"supports_{name}"], name
    assert payload["requires_model_runner_kv"]
    assert payload["input_modes"] == ["append_audio_chunk"]
    assert not payload["supports_reencode_context"]
    assert not payload["supports_turn_commit_only"]
    assert payload["target_barge_in_latency_ms"] == 1000


def test_a_single_session_model_says_so() -> None:
    one = capabilities_payload(Capabilities(80, ("audio",), engine_traits=ENGINE_TRAITS, max_sessions=1))
    assert not one["supports_multi_session"]
    assert not one["supports_multi_session_same_replica"]


def test_a_turn_based_model_says_so() -> None:
    payload = capabilities_payload(
        Capabilities(1000, native_turn_policy=False, input_modes=("turn_commit_only",))
    )
    assert payload["implementation_level"] == "turn_based_duplex"
    assert payload["supports_turn_commit_only"]
