"""What a profile allows a client to ask, and the session object that the engine is opened with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.session.backend import SessionConfig, TurnDetection
from orchestrator.wire.audio import AudioFormat, Codec
from orchestrator.wire.errors import InvalidRequest, Unsupported
from prompts.native import NativeProfile, ReferenceAudio, Seed, VoiceRule

_VOICES = ("ref_audio", "tts_ref_audio")
_PATHS = ("ref_audio_path", "tts_ref_audio_path")
_IGNORED = frozenset({*_VOICES, "native_duplex", "duplex_initial_user_text"})
"""Keys of ``extra_body`` that leave by another door, or that engines no longer read."""
_PASSED_ON = (
    *("prompt", "tools", "tool_choice", "use_tts_template"),
    *("input_audio_transcription", "input_audio_noise_reduction"),
)
_BUNDLED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.pt")


def exact_input(profile: NativeProfile) -> AudioFormat | None:
    """The one format that clients may send, where nothing is converted."""
    audio = profile.audio
    return None if audio.resample else AudioFormat(Codec(audio.input_format), audio.input_rate_hz)


def auto(profile: NativeProfile, config: SessionConfig) -> bool:
    """The model decides when to speak."""
    return profile.auto_response if config.auto_response is None else config.auto_response


def check(profile: NativeProfile, config: SessionConfig) -> None:
    """Refuse at open what the profile rules out, before the engine sees it."""
    if profile.session_mode == "turn" and config.auto_response:
        raise InvalidRequest(
            "this model answers turns only; leave auto_response out",
            code="invalid_duplex_runtime_config",
            param="extra_body.auto_response",
        )
    _check_detection(profile, config, "invalid_session_config")
    _check_input(profile, config, "invalid_session_config")
    _check_voice(profile, config.voice)
    if any(key in config.extra_body for key in _PATHS):
        raise InvalidRequest(
            "a reference voice is sent as data, not as a path", code="unsupported_ref_audio_path"
        )
    given = _reference(config)
    if given is not None and not (isinstance(given, str) and given[:5].lower() == "data:"):
        # An engine would open what it is pointed at, for whoever asks.
        raise InvalidRequest(
            "a reference voice is sent as a data URL", code="unsupported_ref_audio_path", param="ref_audio"
        )
    rule = profile.reference_audio
    if given is not None and rule is ReferenceAudio.REFUSED:
        raise Unsupported(
            "this model takes no reference voice", code="invalid_duplex_runtime_config", param="ref_audio"
        )
    if given is None and rule is ReferenceAudio.REQUIRED and "audio" in _modalities(profile, config):
        raise InvalidRequest(
            "to answer with audio this model needs ref_audio; send it, or ask for modalities text",
            code="ref_audio_required",
            param="ref_audio",
        )


def check_update(profile: NativeProfile, old: SessionConfig, new: SessionConfig, *, heard: bool) -> None:
    """Refuse in an update what the profile rules out. ``heard``: the model has had input."""
    _check_detection(profile, new, "unsupported_turn_detection")
    _check_input(profile, new, "unsupported_audio_format")
    if new.voice != old.voice and profile.voice is VoiceRule.BUNDLED:
        raise InvalidRequest(
            "the voice is chosen when the session opens", code="voice_update_unsupported", param="voice"
        )
    if new.instructions != old.instructions and heard:
        code = "persona_update_unsupported" if profile.persona else "instructions_update_unsupported"
        raise InvalidRequest(
            "the instructions cannot change once the model has had input", code=code, param="instructions"
        )
    if not auto(profile, new) and (new.turn_detection is None) != (old.turn_detection is None):
        raise InvalidRequest(
            "in turn mode the detector is chosen when the session opens",
            code="unsupported_turn_detection",
            param="turn_detection",
        )
    if new.auto_response != old.auto_response and auto(profile, new) != auto(profile, old):
        raise InvalidRequest(
            "auto_response is chosen when the session opens",
            code="invalid_duplex_runtime_config",
            param="extra_body.auto_response",
        )


def body(profile: NativeProfile, config: SessionConfig, seed: str | None = None) -> dict[str, Any]:
    """The session object of the opening event.

    :param seed: for a fresh session, what was said before; where it goes into the instructions it holds them
    """
    instead = seed is not None and profile.horizon.seed is Seed.INSTRUCTIONS
    audio = profile.audio
    wanted: dict[str, Any] = {
        "type": "realtime",
        "model": config.model,
        "modalities": list(_modalities(profile, config)),
        "instructions": seed if instead else config.instructions,
        "initial_user_text": None if seed else config.opening_text,  # said once: a seed goes on from there
        "voice": config.voice or profile.default_voice,
        "ref_audio": _reference(config),
        "input_audio_format": audio.input_format,
        "output_audio_format": "pcm16",
        "sample_rate_hz": audio.input_rate_hz,
        "audio": {
            "input": {"sample_rate_hz": audio.input_rate_hz},
            "output": {"sample_rate_hz": audio.output_rate_hz},
        },
        "temperature": config.temperature,
        "max_response_output_tokens": config.max_output_tokens,
        "speed": config.speed,
        **{key: config.echo[key] for key in _PASSED_ON if key in config.echo},
    }
    return {
        **{key: value for key, value in wanted.items() if value is not None},
        "turn_detection": detection_object(config.turn_detection),
        "extra_body": {
            **profile.extra_body,
            **{key: value for key, value in config.extra_body.items() if key not in _IGNORED},
            "auto_response": auto(profile, config),
        },
    }


def first_item(profile: NativeProfile, seed: str | None) -> dict[str, Any] | None:
    """The item that tells a fresh session what was said before, where the instructions do not."""
    if not seed or profile.horizon.seed is not Seed.TEXT_ITEM:
        return None
    content = [{"type": "input_text", "text": seed}]
    return {"type": "message", "role": "system", "content": content}


def changes(profile: NativeProfile, old: SessionConfig, new: SessionConfig) -> dict[str, Any]:
    """What of the engine's session object an update changes; empty when nothing does."""
    before, after = body(profile, old), body(profile, new)
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    changed |= {key: None for key in before if key not in after}
    if "extra_body" in changed:
        was = before["extra_body"]
        changed["extra_body"] = {k: v for k, v in changed["extra_body"].items() if was.get(k) != v}
    return changed


def detection_object(detection: TurnDetection | None) -> Mapping[str, Any] | None:
    if detection is None:
        return None
    return {
        "type": "server_vad",
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_padding_ms,
        "silence_duration_ms": detection.silence_duration_ms,
        "min_speech_duration_ms": detection.min_speech_duration_ms,
        "create_response": detection.create_response,
    }


def _modalities(profile: NativeProfile, config: SessionConfig) -> tuple[str, ...]:
    """What the client wants and the model has, text at least."""
    return tuple(each for each in config.modalities if each in profile.output) or ("text",)


def _reference(config: SessionConfig) -> Any:
    return next((config.extra_body[key] for key in _VOICES if config.extra_body.get(key)), None)


def _check_voice(profile: NativeProfile, voice: str | None) -> None:
    if voice is not None and profile.voice is VoiceRule.BUNDLED and not _BUNDLED.fullmatch(voice):
        raise InvalidRequest(
            "the voice is the bare file name of one that comes with the model, for example "
            f"{profile.default_voice}",
            code="invalid_session_config",
            param="voice",
        )


def _check_detection(profile: NativeProfile, config: SessionConfig, code: str) -> None:
    if config.turn_detection is not None and not profile.server_vad:
        raise Unsupported("this model has no server_vad", code=code, param="turn_detection")


def _check_input(profile: NativeProfile, config: SessionConfig, code: str) -> None:
    exact, given = exact_input(profile), config.input_format
    if exact is not None and (given.codec, given.rate) != (exact.codec, exact.rate):
        raise Unsupported(
            f"this model takes {exact.codec} at {exact.rate} Hz and nothing else",
            code=code,
            param="input_audio_format",
        )
