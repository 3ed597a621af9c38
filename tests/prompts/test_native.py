"""Native profiles: the whole table is what the contract says, and every mistake is told with its place.

The table here is written from the contract (capabilities 1.6, session object 1.3, media 3.1, units 3.2), not
from the profiles.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from prompts.native import NativeProfile, ReferenceAudio, Seed, SilenceContinuation, VoiceRule
from prompts.native_loader import PROFILES, NativeError, native_names, native_profile

FAMILIES = ("aura", "minicpmo_4_5", "moshi", "nemotron_voicechat", "personaplex", "qwen3_omni")
SERVED = tuple(family for family in FAMILIES if family != "moshi")
T, F = True, False

# family: unit ms, samples, rate in, format in, rate out, sessions
UNITS = {
    "minicpmo_4_5": (1000, 16000, 16000, "pcm16", 24000, 4),
    "personaplex": (80, 1920, 24000, "pcm_f32le", 24000, 2),
    "nemotron_voicechat": (80, 1280, 16000, "pcm_f32le", 22050, 1),
    "aura": (1000, 16000, 16000, "pcm16", 24000, 1),
    "qwen3_omni": (1000, 16000, 16000, "pcm16", 24000, 1),
    "moshi": (80, 1920, 24000, "pcm_f32le", 24000, 1),
}

# field: MiniCPM-o, PersonaPlex, Nemotron VoiceChat, AURA, Qwen3-Omni
CAPABILITIES: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "supports_session_adapter": (T, T, T, T, T),
    "supports_model_native_turn_policy": (T, T, T, F, F),
    "supports_external_turn_signal": (T, F, F, T, T),
    "supports_client_commit": (T, F, T, T, T),
    "supports_barge_in": (T, F, F, T, T),
    "supports_playback_ack": (T, T, T, T, T),
    "supports_input_append": (T, T, T, T, T),
    "supports_replace_latest_chunk": (F, F, F, F, F),
    "supports_reencode_context": (F, F, F, F, T),
    "supports_rollback_to_checkpoint": (F, F, F, F, F),
    "supports_turn_commit_only": (F, F, F, T, T),
    "supports_kv_lease": (F, F, F, F, F),
    "supports_core_kv_lease": (F, F, F, F, F),
    "supports_model_internal_state": (T, T, T, T, F),
    "supports_stage_resumption": (T, T, T, F, F),
    "supports_scheduler_native_append": (F, F, F, F, F),
    "supports_core_resumable_request": (T, T, T, F, F),
    "supports_concurrent_turn_requests": (F, F, F, T, F),
    "required_input_modalities": (["audio"], ["audio"], ["audio"], ["video"], ["audio"]),
    "optional_input_modalities": (["video"], ["video"], ["video"], ["audio"], ["video"]),
    "supports_stage_connector_handoff": (T, T, T, F, F),
    "supports_independent_io_streams": (T, T, T, T, T),
    "supports_realtime_endpoint": (T, T, T, T, T),
    "supports_multi_session": (T, T, F, F, F),
    "supports_multi_session_same_replica": (T, T, F, F, F),
    "supports_session_lease": (T, T, T, T, T),
    "supports_session_resume": (T, F, T, T, T),
    "session_admission_mode": ("engine_managed",) * 5,
    "supports_audio_truncate": (T, F, F, F, T),
    "supports_image_input": (F, F, F, F, T),
    "supports_text_only_turn": (F, F, F, F, T),
    "requires_model_runner_kv": (T, T, T, F, F),
    "requires_native_stage_role": (T, T, T, F, F),
    "implementation_level": ("model_native_duplex",) * 3 + ("turn_based_duplex",) * 2,
    "adapter_patterns": (["scheduler_data_plane"],) * 3 + (["turn_commit"],) * 2,
    "input_modes": (["append_audio_chunk"],) * 5,
    "signal_sources": (
        ["model_native", "client_event", "server_policy"],
        ["model_native", "client_event"],
        ["model_native", "client_event"],
        ["client_event", "server_policy"],
        ["client_event", "server_policy"],
    ),
    "stage_handoff_transport": (
        "scheduler_data_plane", "scheduler_data_plane", "scheduler_data_plane", "stage_connector",
        "scheduler_data_plane",
    ),
    "chunk_period_ms": (1000, 80, 80, 1000, 1000),
    "target_barge_in_latency_ms": (None,) * 5,
}  # fmt: skip
COLUMNS = ("minicpmo_4_5", "personaplex", "nemotron_voicechat", "aura", "qwen3_omni")


def test_the_families_that_ship() -> None:
    assert native_names() == FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_units_and_rates(family: str) -> None:
    profile = native_profile(family)
    audio = profile.audio
    unit = (audio.unit_ms, audio.unit_samples, audio.input_rate_hz, audio.input_format)
    assert (*unit, audio.output_rate_hz, profile.max_sessions) == UNITS[family]


@pytest.mark.parametrize("family", COLUMNS)
def test_all_forty_capabilities(family: str) -> None:
    column = COLUMNS.index(family)
    wanted = {name: values[column] for name, values in CAPABILITIES.items()}
    assert len(wanted) == 40
    found = dict(native_profile(family).capabilities)
    assert found == wanted


def test_a_moshi_class_engine_is_joint_in_frames() -> None:
    profile = native_profile("moshi")
    assert profile.capabilities.keys() == CAPABILITIES.keys()
    assert profile.adapter_patterns == ("parallel_frame_joint",)
    assert profile.silence_continuation is SilenceContinuation.VIGIL
    assert (profile.horizon.seed, profile.horizon.context_tokens) == (Seed.NONE, None)


def test_minicpm_o() -> None:
    profile = native_profile("minicpmo_4_5")
    assert profile.reference_audio is ReferenceAudio.REQUIRED
    assert (profile.barge_in, profile.resume, profile.response_create, profile.server_vad) == (T, T, T, T)
    assert (profile.auto_response, profile.forward_commit, profile.frame_units) == (F, F, F)
    assert profile.target_barge_in_latency_ms == 1000
    assert profile.horizon.tokens_per_second == 12
    assert set(profile.reserved_keys) == {
        "duplex_stage_sampling_params",
        "duplex_stage_max_tokens",
        "duplex_stage0_max_tokens",
        "duplex_scheduler_token_id",
        "duplex_vision_tile_pixels",
        "duplex_first_append_context_tokens",
        "ref_audio_data",
        "ref_audio_format",
        "ref_audio_sample_rate_hz",
        "initial_user_text",
        "duplex_window_config",
        "duplex_window_prefix_tokens",
        "duplex_window_suffix_token_ids",
        "duplex_window_previous_marker_token_ids",
        "duplex_window_special_token_ids",
    }


def test_personaplex() -> None:
    profile = native_profile("personaplex")
    assert (profile.voice, profile.default_voice) == (VoiceRule.BUNDLED, "NATF2.pt")
    assert profile.persona and not profile.audio.resample
    assert (profile.barge_in, profile.resume, profile.server_vad, profile.response_create) == (F, F, F, F)
    assert profile.auto_response and not profile.horizon.turn_ends
    assert profile.max_transcript_bytes == 64 * 1024
    assert set(profile.reserved_keys) == {
        "personaplex_prefill_slots", "personaplex_model_path", "native_duplex", "minicpmo45_native_duplex",
    }  # fmt: skip


def test_nemotron_voicechat() -> None:
    profile = native_profile("nemotron_voicechat")
    assert profile.tools and profile.reserved_keys == ("nvc_*",)
    assert profile.auto_response and profile.extra_body == {"auto_response": True}


def test_aura_and_qwen3_omni_answer_commits() -> None:
    aura, qwen = native_profile("aura"), native_profile("qwen3_omni")
    for profile in (aura, qwen):
        assert profile.session_mode == "turn" and profile.forward_commit and not profile.auto_response
    assert (aura.required_input, aura.optional_input) == (("video",), ("audio",))
    assert aura.frame_units and aura.concurrent_turns
    assert not qwen.text_follows_audio and qwen.frames_per_unit == 0
    assert qwen.reference_audio is ReferenceAudio.REFUSED


@pytest.mark.parametrize("family", SERVED)
def test_a_session_that_can_be_seeded_rolls_over_in_time(family: str) -> None:
    horizon = native_profile(family).horizon
    assert horizon.context_tokens is not None and horizon.seed is not Seed.NONE
    seeded = horizon.prefix_tokens + horizon.seed_max_tokens
    talk_s = (horizon.rollover_at * horizon.context_tokens - seeded) / horizon.tokens_per_second
    assert talk_s > 60, "a fresh session outlasts its own preparation many times over"


def test_a_profile_is_the_same_object_and_names_its_own_bytes() -> None:
    digests = {native_profile(family).digest for family in FAMILIES}
    assert len(digests) == len(FAMILIES)
    assert native_profile("aura") is native_profile("aura")


@pytest.fixture
def edited(tmp_path: Path) -> Any:
    """``edited(pattern, replacement)``: the MiniCPM-o profile with one line changed, loaded from a folder."""

    def load(pattern: str, replacement: str) -> NativeProfile:
        folder = tmp_path / "minicpmo_4_5"
        folder.mkdir()
        text = (PROFILES / "minicpmo_4_5" / "native.toml").read_text()
        changed, count = re.subn(pattern, replacement, text, count=1, flags=re.M)
        assert count == 1
        (folder / "native.toml").write_text(changed)
        return native_profile(str(folder))

    return load


@pytest.mark.parametrize(
    ("pattern", "replacement", "words"),
    [
        (r"^unit_samples = .*", "unit_samples = 15999", "audio: .*unit_samples is not unit_ms"),
        (r"^unit_ms = .*", 'unit_ms = "1000"', "audio.unit_ms"),
        (r"^input_format = .*", 'input_format = "wav"', "audio.input_format"),
        (r"^resample = .*", "resampling = true", "audio.resampl"),
        (r"^seed = .*", 'seed = "none"', "seed_max_tokens is 0 where seed is none"),
        (r"^seed_max_tokens = .*", "seed_max_tokens = 30000", "leave no room"),
        (r"^required = .*", 'required = ["audio", "video"]', "required or optional, not both"),
        (r"^frame_units = .*", "frame_units = true", "audio must not be required"),
        (r"^optional = .*", "optional = []", "frames_per_unit needs video"),
        (r"^response_create = .*", "response_create = false", "nothing is ever answered"),
        (r"^barge_in = .*", "barge_in = false", "target_barge_in_latency_ms needs barge_in"),
        (r"^session_mode = .*", 'session_mode = "turn"', "forward_commit is true"),
        (r'^rule = "any"', 'rule = "bundled"', "a bundled voice needs a default"),
        (r"^max_sessions = .*", "max_sessions = 0", "session.max_sessions"),
        (r"^supports_client_commit = .*", "", "capabilities.supports_client_commit: Field required"),
        (
            r"^supports_client_commit = .*",
            "supports_barge_in = true",
            "capabilities.supports_barge_in: Extra",
        ),
        (r"^family = .*", 'family = "other"', "lies in a folder called"),
        (r"^family = .*", "family = ", "Invalid value"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(
    edited: Any, pattern: str, replacement: str, words: str
) -> None:
    with pytest.raises(NativeError, match=rf"minicpmo_4_5/native.toml: .*{words}"):
        edited(pattern, replacement)


def test_a_family_without_a_profile_says_what_there_is() -> None:
    with pytest.raises(NativeError, match="known: aura, minicpmo_4_5"):
        native_profile("joyvl")
