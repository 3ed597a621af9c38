"""The ``capabilities`` object of the wire: every field of the contract, from what a backend offers."""

from __future__ import annotations

from typing import Any

from orchestrator.session.backend import Capabilities

ENGINE_TRAITS = (
    "model_internal_state",
    "stage_resumption",
    "core_resumable_request",
    "stage_connector_handoff",
    "multi_session_same_replica",
)
"""Traits of an engine-resident model that a native backend may list in ``Capabilities.engine_traits``."""


def capabilities_payload(capabilities: Capabilities) -> dict[str, Any]:
    """All fields, in the contract's order. Lists of modalities are sorted."""
    own = capabilities
    traits = {f"supports_{trait}": trait in own.engine_traits for trait in ENGINE_TRAITS}
    several = own.max_sessions > 1
    return {
        "supports_session_adapter": True,
        "supports_model_native_turn_policy": own.native_turn_policy,
        "supports_external_turn_signal": own.external_turn_signal,
        "supports_client_commit": own.client_commit,
        "supports_barge_in": own.supports_barge_in,
        "supports_playback_ack": True,
        "supports_input_append": True,
        "supports_replace_latest_chunk": "replace_latest_chunk" in own.input_modes,
        "supports_reencode_context": "reencode_context" in own.input_modes,
        "supports_rollback_to_checkpoint": "rollback_to_checkpoint" in own.input_modes,
        "supports_turn_commit_only": "turn_commit_only" in own.input_modes,
        "supports_kv_lease": False,
        "supports_core_kv_lease": False,
        "supports_model_internal_state": traits["supports_model_internal_state"],
        "supports_stage_resumption": traits["supports_stage_resumption"],
        "supports_scheduler_native_append": False,
        "supports_core_resumable_request": traits["supports_core_resumable_request"],
        "supports_concurrent_turn_requests": own.concurrent_turns,
        "required_input_modalities": sorted(own.required_input_modalities),
        "optional_input_modalities": sorted(own.optional_input_modalities),
        "supports_stage_connector_handoff": traits["supports_stage_connector_handoff"],
        "supports_independent_io_streams": True,
        "supports_realtime_endpoint": True,
        "supports_multi_session": several,
        "supports_multi_session_same_replica": several and traits["supports_multi_session_same_replica"],
        "supports_session_lease": True,
        "supports_session_resume": own.supports_session_resume,
        "session_admission_mode": "engine_managed",
        "supports_audio_truncate": own.audio_truncate,
        "supports_image_input": own.supports_image_input,
        "supports_text_only_turn": own.supports_text_only_turn,
        "requires_model_runner_kv": traits["supports_core_resumable_request"],
        "requires_native_stage_role": traits["supports_core_resumable_request"],
        "implementation_level": "model_native_duplex" if own.native_turn_policy else "turn_based_duplex",
        "adapter_patterns": list(own.adapter_patterns),
        "input_modes": list(own.input_modes),
        "signal_sources": list(own.signal_sources),
        "stage_handoff_transport": own.stage_handoff_transport,
        "chunk_period_ms": own.chunk_period_ms,
        "target_barge_in_latency_ms": own.target_barge_in_latency_ms,
    }
