"""What a paired session offers: the engine's word where it gave one, else the profile's; ours for our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridges.duplex_client.link import OpenedSession
from orchestrator.backends.native.faults import mismatch
from orchestrator.backends.native.rules import exact_input
from orchestrator.session.backend import Capabilities
from orchestrator.session.capabilities import ENGINE_TRAITS
from prompts.native import NativeProfile


def native_capabilities(
    profile: NativeProfile,
    max_sessions: int,
    told: Mapping[str, Any] | None = None,
    *,
    engine_commits: bool = False,
) -> Capabilities:
    """
    :param told: what the engine advertises; ``None``: before any engine was asked
    :param engine_commits: its detector seals turns, so it hears everything as it comes
    """
    known: Mapping[str, Any] = {**profile.capabilities, **(told or {})}

    def has(key: str, otherwise: bool = False) -> bool:
        value = known.get(key)
        return value if isinstance(value, bool) else otherwise

    required = set(profile.required_input) & set(
        _names(known, "required_input_modalities", profile.required_input)
    )
    taken = {*profile.required_input, *profile.optional_input}
    return Capabilities(
        takes_opening=True,
        chunk_period_ms=profile.audio.unit_ms,
        required_input_modalities=tuple(sorted(required)),
        optional_input_modalities=tuple(sorted(taken - required)),
        supports_barge_in=has("supports_barge_in", profile.barge_in),
        supports_image_input=has("supports_image_input"),
        supports_text_only_turn=has("supports_text_only_turn"),
        supports_session_resume=profile.resume,
        target_barge_in_latency_ms=profile.target_barge_in_latency_ms,
        max_frames_per_append=profile.frames_per_unit,
        output_modalities=profile.output,
        auto_response=profile.auto_response,
        holds_turn_input=not engine_commits,
        seals_first=not engine_commits,
        concurrent_turns=has("supports_concurrent_turn_requests", profile.concurrent_turns),
        text_follows_audio=profile.text_follows_audio,
        native_turn_policy=has("supports_model_native_turn_policy", profile.session_mode == "duplex"),
        external_turn_signal=has("supports_external_turn_signal", True),
        client_commit=has("supports_client_commit", True),
        audio_truncate=has("supports_audio_truncate"),
        input_modes=_names(known, "input_modes", profile.input_modes),
        adapter_patterns=_names(known, "adapter_patterns", profile.adapter_patterns),
        signal_sources=_names(known, "signal_sources", ("model_native", "client_event")),
        engine_traits=tuple(trait for trait in ENGINE_TRAITS if has(f"supports_{trait}")),
        stage_handoff_transport=_text(known, "stage_handoff_transport"),
        max_sessions=max_sessions,
        input_rate_hz=profile.audio.input_rate_hz,
        client_tools=profile.tools,
        response_create=profile.response_create,
        exact_input=exact_input(profile),
        max_transcript_bytes=profile.max_transcript_bytes,
        reserved_keys=profile.reserved_keys,
    )


def takes_frames_alone(profile: NativeProfile, told: Mapping[str, Any]) -> bool:
    """The engine takes a frame group without audio; what it advertises counts before the profile."""
    required = told.get("required_input_modalities")
    return "audio" not in required if isinstance(required, list) else profile.frame_units


def fit(profile: NativeProfile, opened: OpenedSession) -> None:
    """Raise ``runtime_contract_invalid`` when the engine is another one than the profile describes."""
    told = opened.capabilities
    level = told.get("implementation_level")
    expected = profile.capabilities.get("implementation_level")
    if level is not None and expected is not None and level != expected:
        raise mismatch(f"it is {level}, not {expected}")
    period = told.get("chunk_period_ms")
    if period is not None and period != profile.audio.unit_ms:
        raise mismatch(f"its period is {period} ms, not {profile.audio.unit_ms}")
    needed = set(_names(told, "required_input_modalities", profile.required_input))
    taken = needed | set(_names(told, "optional_input_modalities", profile.optional_input))
    wanted = {*profile.required_input, *profile.optional_input}
    # Where there are frames without audio, silence is added to them.
    spared = {"audio"} if "video" in wanted else set()
    if beyond := sorted(needed - spared - set(profile.required_input)):
        raise mismatch(f"it needs {', '.join(beyond)}")
    if missing := sorted(wanted - taken):
        raise mismatch(f"it takes no {', '.join(missing)}")
    for side, rate in (("input", profile.audio.input_rate_hz), ("output", profile.audio.output_rate_hz)):
        said = _rate(opened.session, side)
        if said is not None and said != rate:
            raise mismatch(f"its {side} rate is {said} Hz, not {rate}")


def _rate(session: Mapping[str, Any], side: str) -> Any:
    audio = session.get("audio")
    half = audio.get(side) if isinstance(audio, Mapping) else None
    rate = half.get("sample_rate_hz") if isinstance(half, Mapping) else None
    if rate is None and side == "input":
        return session.get("sample_rate_hz")
    return rate


def _names(known: Mapping[str, Any], key: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    value = known.get(key)
    return tuple(map(str, value)) if isinstance(value, list | tuple) else otherwise


def _text(known: Mapping[str, Any], key: str) -> str | None:
    value = known.get(key)
    return value if isinstance(value, str) else None
