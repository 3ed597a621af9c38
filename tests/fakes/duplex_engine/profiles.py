"""Kinds of engines as data: what they advertise (as in the contract) and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_CLASS_DEFAULTS: Mapping[str, Any] = {
    "supports_session_adapter": True,
    "supports_model_native_turn_policy": False,
    "supports_external_turn_signal": True,
    "supports_client_commit": True,
    "supports_barge_in": True,
    "supports_playback_ack": True,
    "supports_input_append": True,
    "supports_replace_latest_chunk": False,
    "supports_reencode_context": False,
    "supports_rollback_to_checkpoint": False,
    "supports_turn_commit_only": False,
    "supports_kv_lease": False,
    "supports_core_kv_lease": False,
    "supports_model_internal_state": True,
    "supports_stage_resumption": False,
    "supports_scheduler_native_append": False,
    "supports_core_resumable_request": False,
    "supports_concurrent_turn_requests": False,
    "required_input_modalities": ["audio"],
    "optional_input_modalities": ["video"],
    "supports_stage_connector_handoff": False,
    "supports_independent_io_streams": True,
    "supports_realtime_endpoint": True,
    "supports_session_lease": True,
    "supports_session_resume": True,
    "session_admission_mode": "engine_managed",
    "supports_audio_truncate": False,
    "supports_image_input": False,
    "supports_text_only_turn": False,
    "requires_model_runner_kv": False,
    "requires_native_stage_role": False,
    "implementation_level": "turn_based_duplex",
    "adapter_patterns": ["turn_commit"],
    "input_modes": ["append_audio_chunk"],
    "signal_sources": ["client_event", "server_policy"],
    "stage_handoff_transport": None,
    "chunk_period_ms": 1000,
    "target_barge_in_latency_ms": None,
}
_NATIVE: Mapping[str, Any] = {
    "supports_model_native_turn_policy": True,
    "supports_stage_resumption": True,
    "supports_core_resumable_request": True,
    "supports_stage_connector_handoff": True,
    "requires_model_runner_kv": True,
    "requires_native_stage_role": True,
    "implementation_level": "model_native_duplex",
    "adapter_patterns": ["scheduler_data_plane"],
    "stage_handoff_transport": "scheduler_data_plane",
}


@dataclass(frozen=True)
class EngineProfile:
    """:param model: the served name
    :param unit_samples: what the model takes at a time, at ``input_rate_hz``
    :param input_format: the only one it takes, or ``None`` for all
    :param append_limit: samples one append may hold, or ``None``
    :param differs: its capabilities where they are not the usual ones
    :param needs_reference: audio output wants ``ref_audio`` at the opening
    :param auto_response: True: it must be on; False: it must be off; ``None``: the client's choice
    :param voices_bundled: a voice is a bare name that ends in ``.pt``
    :param private_keys: of ``extra_body``, refused
    :param whole_turn: the model gets a turn as one unit, at its commit, and answers it in one go
    :param prefix_tokens: of its context when it opens; ``unit_tokens`` each further unit takes
    """

    name: str
    model: str
    unit_ms: int = 1000
    unit_samples: int = 16000
    input_rate_hz: int = 16000
    input_format: str | None = None
    output_rate_hz: int = 24000
    append_limit: int | None = None
    max_sessions: int = 2
    differs: Mapping[str, Any] = field(default_factory=dict)
    needs_reference: bool = False
    auto_response: bool | None = None
    server_vad: bool = True
    voices_bundled: bool = False
    private_keys: tuple[str, ...] = ()
    whole_turn: bool = False
    silence_continuation: bool = True
    prefix_tokens: int = 64
    unit_tokens: int = 12

    def capabilities(self, max_sessions: int) -> dict[str, Any]:
        """What is advertised where that many sessions are served."""
        several = max_sessions > 1
        return {
            **_CLASS_DEFAULTS,
            "supports_multi_session": several,
            "supports_multi_session_same_replica": several,
            **self.differs,
        }

    @property
    def resume(self) -> bool:
        return bool(self.differs.get("supports_session_resume", True))

    @property
    def barge_in(self) -> bool:
        return bool(self.differs.get("supports_barge_in", True))

    @property
    def required(self) -> frozenset[str]:
        return frozenset(self.differs.get("required_input_modalities", ["audio"]))

    @property
    def optional(self) -> frozenset[str]:
        return frozenset(self.differs.get("optional_input_modalities", ["video"]))


MINICPM_LIKE = EngineProfile(
    name="minicpmo_4_5",
    model="openbmb/MiniCPM-o-4_5",
    max_sessions=4,
    needs_reference=True,
    private_keys=("duplex_stage_max_tokens", "duplex_stage_sampling_params", "ref_audio_data"),
    differs={
        **_NATIVE,
        "supports_audio_truncate": True,
        "signal_sources": ["model_native", "client_event", "server_policy"],
    },
)
MINICPM_VISION_LIKE = EngineProfile(
    name="minicpmo_4_5_vision",
    model="openbmb/MiniCPM-o-4_5",
    max_sessions=4,
    needs_reference=True,
    private_keys=MINICPM_LIKE.private_keys,
    differs={
        **MINICPM_LIKE.differs,
        "required_input_modalities": [],
        "optional_input_modalities": ["audio", "video"],
    },
)
PERSONAPLEX_LIKE = EngineProfile(
    name="personaplex",
    model="nvidia/personaplex-7b-v1",
    unit_ms=80,
    unit_samples=1920,
    input_rate_hz=24000,
    input_format="pcm_f32le",
    server_vad=False,
    voices_bundled=True,
    private_keys=("personaplex_prefill_slots", "personaplex_model_path", "native_duplex"),
    differs={
        **_NATIVE,
        "supports_external_turn_signal": False,
        "supports_client_commit": False,
        "supports_barge_in": False,
        "supports_session_resume": False,
        "signal_sources": ["model_native", "client_event"],
        "chunk_period_ms": 80,
    },
)
NEMOTRON_LIKE = EngineProfile(
    name="nemotron_voicechat",
    model="nvidia/nemotron-voicechat",
    unit_ms=80,
    unit_samples=1280,
    append_limit=1280,
    output_rate_hz=22050,
    max_sessions=1,
    auto_response=True,
    private_keys=("nvc_",),
    differs={
        **_NATIVE,
        "supports_external_turn_signal": False,
        "supports_barge_in": False,
        "supports_multi_session_same_replica": False,
        "signal_sources": ["model_native", "client_event"],
        "chunk_period_ms": 80,
    },
)
AURA_LIKE = EngineProfile(
    name="aura",
    model="aura-omni",
    max_sessions=1,
    whole_turn=True,
    silence_continuation=False,
    differs={
        "supports_turn_commit_only": True,
        "supports_concurrent_turn_requests": True,
        "required_input_modalities": ["video"],
        "optional_input_modalities": ["audio"],
        "stage_handoff_transport": "stage_connector",
    },
)
QWEN_OMNI_LIKE = EngineProfile(
    name="qwen3_omni",
    model="Qwen/Qwen3-Omni-30B-A3B-Instruct",
    max_sessions=1,
    auto_response=False,
    whole_turn=True,
    silence_continuation=False,
    differs={
        "supports_reencode_context": True,
        "supports_turn_commit_only": True,
        "supports_model_internal_state": False,
        "supports_audio_truncate": True,
        "supports_image_input": True,
        "supports_text_only_turn": True,
        "stage_handoff_transport": "scheduler_data_plane",
    },
)
PROFILES: Mapping[str, EngineProfile] = {
    profile.name: profile
    for profile in (
        MINICPM_LIKE,
        MINICPM_VISION_LIKE,
        PERSONAPLEX_LIKE,
        NEMOTRON_LIKE,
        AURA_LIKE,
        QWEN_OMNI_LIKE,
    )
}
