"""A native profile as the engine launcher takes it: plain values, since that room knows no profiles."""

from __future__ import annotations

from engine_launch.duplex_spec import DuplexSpec
from prompts.native import NativeProfile, ReferenceAudio
from prompts.native_loader import native_names, native_profile


def duplex_for_family(family: str) -> DuplexSpec | None:
    """What an engine of ``family`` is held to; None where the family has no native profile."""
    return duplex_spec(native_profile(family)) if family in native_names() else None


def duplex_spec(profile: NativeProfile) -> DuplexSpec:
    audio = profile.audio
    return DuplexSpec(
        family=profile.family,
        capabilities=profile.capabilities,
        required=profile.required_input,
        optional=profile.optional_input,
        unit_ms=audio.unit_ms,
        unit_samples=audio.unit_samples,
        input_rate_hz=audio.input_rate_hz,
        input_format=audio.input_format,
        output_rate_hz=audio.output_rate_hz,
        max_sessions=profile.max_sessions,
        output=profile.output,
        turns=profile.session_mode == "turn",
        frames="video" in profile.required_input,
        reference_audio=profile.reference_audio is ReferenceAudio.REQUIRED,
        voice=profile.default_voice,
        extra_body=profile.extra_body,
    )
