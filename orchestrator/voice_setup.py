"""The voice that the settings name."""

from __future__ import annotations

from bridges.circuit import Clock
from bridges.clause_speaker import ClauseSpeaker, Synthesiser
from bridges.piper_voice import PiperOptions, PiperVoice
from bridges.speech import SpeechError
from bridges.speech_endpoint import EndpointOptions, SpeechEndpoint
from bridges.system_voice import SystemOptions, SystemVoice
from orchestrator.backends.spoken import SpokenOptions
from orchestrator.exits import Exit, SetupError
from orchestrator.session.backend import SpeechPolicy
from orchestrator.setting_groups import VoiceGroup


def speaker_of(voice: VoiceGroup, clock: Clock) -> ClauseSpeaker | None:
    """One for all sessions; ``None``: answers are text.

    :raises SetupError: what it needs is not installed
    """
    try:
        synthesiser = _synthesiser(voice, clock)
    except SpeechError as error:
        raise SetupError(f"voice.bridge: {error.message}", error.code, Exit.USAGE) from error
    return None if synthesiser is None else ClauseSpeaker(synthesiser, clock)


def spoken_options(voice: VoiceGroup) -> SpokenOptions:
    return SpokenOptions(lead_s=voice.lead_s, policy=SpeechPolicy(voice.policy))


def _synthesiser(voice: VoiceGroup, clock: Clock) -> Synthesiser | None:
    if voice.bridge == "system":
        return SystemVoice(SystemOptions(voice.program, voice.name, voice.processes))
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
