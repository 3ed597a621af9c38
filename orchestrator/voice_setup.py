"""The voice that the settings name."""

from __future__ import annotations

from bridges.circuit import Clock
from bridges.clause_speaker import ClauseSpeaker, Synthesiser
from bridges.fallback_voice import FallbackVoice
from bridges.piper_voice import PiperOptions, PiperVoice
from bridges.speech import SpeechError
from bridges.speech_endpoint import EndpointOptions, SpeechEndpoint
from bridges.system_voice import SystemOptions, SystemVoice
from orchestrator.backends.spoken import SpokenOptions
from orchestrator.exits import Exit, SetupError
from orchestrator.session.backend import SpeechPolicy
from orchestrator.setting_groups import VoiceGroup

_NAMED = ("openai", "piper")
"""Bridges that may be away."""


def speaker_of(voice: VoiceGroup, clock: Clock) -> ClauseSpeaker | None:
    """One for all sessions; ``None``: answers are text. Where another voice fails, the system's stands in.

    :raises SetupError: what it needs is not installed
    """
    try:
        synthesiser = _synthesiser(voice, clock)
    except SpeechError as error:
        raise SetupError(f"voice.bridge: {error.message}", error.code, Exit.USAGE) from error
    if synthesiser is not None and voice.bridge in _NAMED and (system := _system(voice)) is not None:
        synthesiser = FallbackVoice(synthesiser, system, clock)
    return None if synthesiser is None else ClauseSpeaker(synthesiser, clock)


def default_modalities(voice: VoiceGroup) -> tuple[str, ...]:
    """Of a session that asks for none: a voice that nobody set up is only for who asks for it."""
    return ("text",) if voice.bridge == "auto" else ("text", "audio")


def told_of(voice: VoiceGroup) -> str:
    """Who speaks, for people; empty: nobody."""
    system = _system(voice)
    programs = " and ".join(system.programs) if system is not None else ""
    if voice.bridge in _NAMED:
        return f"{voice.bridge}, with {programs} to stand in" if programs else voice.bridge
    return "" if voice.bridge == "none" else programs


def spoken_options(voice: VoiceGroup) -> SpokenOptions:
    return SpokenOptions(lead_s=voice.lead_s, policy=SpeechPolicy(voice.policy))


def _synthesiser(voice: VoiceGroup, clock: Clock) -> Synthesiser | None:
    if voice.bridge == "auto":
        return _system(voice)
    if voice.bridge == "system":
        return SystemVoice(_system_options(voice))
    if voice.bridge == "openai":
        assert voice.url is not None and voice.model is not None
        return SpeechEndpoint(
            EndpointOptions(
                voice.url,
                voice.model,
                voice.api_key.get_secret_value() if voice.api_key else None,
                voice.name,
                voice.format,
                voice.rate_hz,
                in_flight=voice.processes,
            ),
            clock,
        )
    if voice.bridge == "piper":
        assert voice.piper_python is not None and voice.piper_model is not None
        return PiperVoice(PiperOptions(voice.piper_python, voice.piper_model))
    return None


def _system(voice: VoiceGroup) -> SystemVoice | None:
    try:
        return SystemVoice(_system_options(voice))
    except SpeechError:
        return None


def _system_options(voice: VoiceGroup) -> SystemOptions:
    return SystemOptions(voice.program, voice.name, voice.processes)
