"""The session object: what an engine reads of it, what it refuses, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.wire.audio import parse_format
from orchestrator.wire.errors import InvalidRequest
from tests.fakes.duplex_engine.channel import Json
from tests.fakes.duplex_engine.intake import Refused
from tests.fakes.duplex_engine.profiles import EngineProfile

if TYPE_CHECKING:
    from tests.fakes.duplex_engine.session import EngineSession

NOT_ECHOED = {"extra_body", "ref_audio"}


def _inner(session: Mapping[str, Any], *path: str) -> Any:
    found: Any = session
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


@dataclass
class Opening:
    """An accepted opening. ``raw``: the client's object, with what updates changed."""

    raw: Json
    model: str
    auto: bool
    modalities: list[str]
    input_format: Any
    rate_hz: int
    output_format: Any
    vad: Json | None
    silence_rms: float
    short_ack_ms: float
    force_listen: int

    @classmethod
    def read(cls, session: Mapping[str, Any], profile: EngineProfile, model: str | None) -> Opening:
        """Raises ``Refused``."""
        raw = dict(session)
        extra = raw.get("extra_body")
        extra = dict(extra) if isinstance(extra, Mapping) else {}
        _check_extra(extra, profile)
        modalities = raw.get("modalities") or raw.get("output_modalities") or ["text", "audio"]
        input_format = _inner(raw, "audio", "input", "format") or raw.get("input_audio_format") or "pcm16"
        output_format = raw.get("output_audio_format") or _inner(raw, "audio", "output", "format") or "pcm16"
        try:
            declared = parse_format(input_format)
            parse_format(output_format, output=True, param="output_audio_format")
        except InvalidRequest as bad:
            raise Refused("invalid_session_config", bad.message) from bad
        if profile.input_format not in (None, declared.codec.value):
            raise Refused("invalid_session_config", f"input is {profile.input_format}")
        vad = _inner(raw, "audio", "input", "turn_detection") or raw.get("turn_detection")
        if vad is not None and (not profile.server_vad or _inner(vad, "type") != "server_vad"):
            raise Refused("invalid_session_config", "this turn_detection is not supported")
        reference = raw.get("ref_audio") or extra.get("ref_audio") or extra.get("tts_ref_audio")
        if profile.needs_reference and "audio" in modalities and not reference:
            raise Refused("ref_audio_required", "audio output needs ref_audio")
        voice = raw.get("voice") or _inner(raw, "audio", "output", "voice")
        if profile.voices_bundled and voice and ("/" in voice or not voice.endswith(".pt")):
            raise Refused("invalid_session_config", "a voice is the bare name of a bundled one")
        rate = (
            raw.get("sample_rate_hz")
            or raw.get("sample_rate")
            or _inner(raw, "audio", "input", "sample_rate_hz")
            or declared.rate
            or 16000
        )
        return cls(
            raw=raw,
            model=str(raw.get("model") or model or profile.model),
            auto=_auto(extra, profile),
            modalities=list(modalities),
            input_format=input_format,
            rate_hz=int(rate),
            output_format=output_format,
            vad=dict(vad) if isinstance(vad, Mapping) else None,
            silence_rms=float(raw.get("overlap_silence_rms", 0.003)),
            short_ack_ms=float(raw.get("overlap_short_ack_ms", 700)),
            force_listen=int(extra.get("force_listen_count", 0)),
        )

    @property
    def instructions(self) -> str | None:
        return self.raw.get("instructions")

    def update(self, patch: Mapping[str, Any], profile: EngineProfile, *, heard: bool, spoke: bool) -> None:
        """Apply a change, all or nothing. Raises ``Refused``."""
        if patch.get("model") not in (None, self.model):
            raise Refused("model_update_unsupported", "the model cannot change")
        if "ref_audio" in patch:
            raise Refused("ref_audio_update_unsupported", "the reference audio cannot change")
        if spoke and isinstance(patch.get("voice"), str):
            raise Refused("voice_update_after_audio_unsupported", "it has spoken already")
        if heard and patch.get("instructions") not in (None, self.instructions):
            raise Refused("instructions_update_unsupported", "it has heard already")
        extra = patch.get("extra_body")
        extra = dict(extra) if isinstance(extra, Mapping) else {}
        _check_extra(extra, profile)
        try:
            if "input_audio_format" in patch:
                parse_format(patch["input_audio_format"])
        except InvalidRequest as bad:
            raise Refused("unsupported_audio_format", bad.message) from bad
        merged = {**(self.raw.get("extra_body") or {}), **extra}
        self.raw = {**self.raw, **patch, "extra_body": merged}


def _check_extra(extra: Mapping[str, Any], profile: EngineProfile) -> None:
    private = [
        key
        for key in sorted(extra)
        if key in profile.private_keys
        or key.startswith(tuple(p for p in profile.private_keys if p[-1] == "_"))
    ]
    if private:
        raise Refused("invalid_duplex_runtime_config", f"set by the server only: {', '.join(private)}")


def _auto(extra: Mapping[str, Any], profile: EngineProfile) -> bool:
    auto = extra.get("auto_response") is True or extra.get("full_duplex") is True
    if profile.auto_response is True and not auto:
        raise Refused("unsupported_nemotron_duplex_mode", "auto_response must be true")
    if profile.auto_response is False and auto:
        raise Refused("invalid_duplex_runtime_config", "auto_response must be false")
    return auto


def session_object(session: EngineSession) -> Json:
    """What ``session.created`` and its kind carry."""
    opening, model = session.opening, session.model
    active = model.open
    return {
        **{key: value for key, value in opening.raw.items() if key not in NOT_ECHOED},
        "object": "realtime.session",
        "type": "realtime",
        "id": session.id,
        "state": "closing" if session.closing else "open",
        "turn_state": "assistant_generating" if active else "idle",
        "epoch": model.epoch,
        "turn_id": model.turn_id,
        "active_response_id": active.id if active else None,
        "model": opening.model,
        "modalities": opening.modalities,
        "output_modalities": opening.modalities,
        "instructions": opening.instructions,
        "input_audio_format": opening.input_format,
        "output_audio_format": opening.output_format,
        "audio": {
            "input": {"format": {"type": "audio/pcm"}, "sample_rate_hz": opening.rate_hz},
            "output": {"format": {"type": "audio/pcm"}, "sample_rate_hz": session.profile.output_rate_hz},
        },
        "turn_detection": opening.vad,
        "overlap_policy": "barge_in_on_speech" if opening.vad else "listen_only",
        "overlap_short_ack_ms": opening.short_ack_ms,
        "overlap_silence_rms": opening.silence_rms,
        "idle_timeout_s": opening.raw.get("idle_timeout_s", 300.0),
        "playback_commit_policy": "ack_only",
        "playback": active.playback if active else dict.fromkeys(
            ("generated_ms", "sent_ms", "played_ms", "committed_ms"), 0
        ),
        "capabilities": session.profile.capabilities(session.engine.max_sessions),
    }  # fmt: skip
