"""Read ``<family>/native.toml``, check it, and give it out as a :class:`NativeProfile`.

What the engine is expected to advertise follows from the profile's other keys where those say it already;
the ``[capabilities]`` table holds the rest. Raises ``NativeError`` with the file and the key at fault.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from prompts.native import (
    Audio,
    Counted,
    Horizon,
    NativeProfile,
    ReferenceAudio,
    Seed,
    SilenceContinuation,
    VoiceRule,
)

PROFILES = Path(__file__).parent
FILE = "native.toml"

Modality = Literal["audio", "video"]

_SAME_EVERYWHERE: Mapping[str, Any] = {
    "session_admission_mode": "engine_managed",
    "supports_core_kv_lease": False,
    "supports_independent_io_streams": True,
    "supports_input_append": True,
    "supports_kv_lease": False,
    "supports_playback_ack": True,
    "supports_realtime_endpoint": True,
    "supports_replace_latest_chunk": False,
    "supports_rollback_to_checkpoint": False,
    "supports_scheduler_native_append": False,
    "supports_session_adapter": True,
    "supports_session_lease": True,
    "target_barge_in_latency_ms": None,
}
"""What every full-duplex engine advertises alike. No engine states a latency; profiles do."""


class NativeError(Exception):
    """A profile is missing or wrong; the message names the file and what to change."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Audio(_Strict):
    unit_ms: int = Field(gt=0)
    unit_samples: int = Field(gt=0)
    input_rate_hz: int = Field(ge=8000, le=192000)
    input_format: Literal["pcm16", "pcm_f32le"]
    output_rate_hz: int = Field(ge=8000, le=192000)
    resample: bool

    @model_validator(mode="after")
    def _one_unit(self) -> _Audio:
        if self.unit_samples * 1000 != self.unit_ms * self.input_rate_hz:
            raise ValueError("unit_samples is not unit_ms of audio at input_rate_hz")
        return self


class _Counted(_Strict):
    stage: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    output: str = Field(min_length=1)
    streamed: bool


class _Horizon(_Strict):
    context_tokens: int | None = Field(default=None, gt=0)
    tokens_per_second: float = Field(gt=0)
    tokens_per_frame: int = Field(ge=0)
    prefix_tokens: int = Field(ge=0)
    seed: Literal["instructions", "text_item", "none"]
    seed_max_tokens: int = Field(ge=0)
    rollover_at: float = Field(gt=0, lt=1)
    turn_ends: bool
    counted: _Counted | None = None

    @model_validator(mode="after")
    def _room(self) -> _Horizon:
        if (self.seed == "none") != (self.seed_max_tokens == 0):
            raise ValueError("seed_max_tokens is 0 where seed is none, and only there")
        seeded = self.prefix_tokens + self.seed_max_tokens
        if self.context_tokens is not None and seeded >= self.rollover_at * self.context_tokens:
            raise ValueError("prefix_tokens and seed_max_tokens leave no room before rollover_at")
        return self


class _Input(_Strict):
    required: list[Modality]
    optional: list[Modality]
    frame_units: bool
    frames_per_unit: int = Field(ge=0, le=2)

    @model_validator(mode="after")
    def _frames(self) -> _Input:
        if set(self.required) & set(self.optional):
            raise ValueError("a modality is required or optional, not both")
        if self.frames_per_unit and "video" not in {*self.required, *self.optional}:
            raise ValueError("frames_per_unit needs video among the modalities")
        if self.frame_units and (not self.frames_per_unit or "audio" in self.required):
            raise ValueError("frame_units: frames must be taken, and audio must not be required")
        return self


class _Output(_Strict):
    modalities: list[Literal["text", "audio"]] = Field(min_length=1)
    text_follows_audio: bool
    max_transcript_bytes: int = Field(gt=0)


class _Turns(_Strict):
    auto_response: bool
    barge_in: bool
    server_vad: bool
    response_create: bool
    forward_commit: bool
    silence_continuation: Literal["engine", "vigil"]
    concurrent_turns: bool
    target_barge_in_latency_ms: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _answered(self) -> _Turns:
        if not self.auto_response and not self.response_create:
            raise ValueError("without auto_response and response_create nothing is ever answered")
        if self.target_barge_in_latency_ms is not None and not self.barge_in:
            raise ValueError("target_barge_in_latency_ms needs barge_in")
        return self


class _Session(_Strict):
    resume: bool
    max_lead_units: int = Field(gt=0)
    max_sessions: int = Field(gt=0)


class _Voice(_Strict):
    rule: Literal["any", "bundled"]
    default: str | None = Field(default=None, min_length=1)
    persona: bool
    reference_audio: Literal["required", "optional", "refused"]

    @model_validator(mode="after")
    def _bundled(self) -> _Voice:
        if self.rule == "bundled" and self.default is None:
            raise ValueError("a bundled voice needs a default")
        return self


class _ExtraBody(_Strict):
    reserved_keys: list[str]
    always: dict[str, Any]


class _Capabilities(_Strict):
    """What no other key of the profile says."""

    adapter_patterns: list[str] = Field(min_length=1)
    input_modes: list[str] = Field(min_length=1)
    signal_sources: list[str] = Field(min_length=1)
    stage_handoff_transport: str
    supports_external_turn_signal: bool
    supports_client_commit: bool
    supports_reencode_context: bool
    supports_model_internal_state: bool
    supports_stage_resumption: bool
    supports_core_resumable_request: bool
    supports_stage_connector_handoff: bool
    supports_audio_truncate: bool
    supports_image_input: bool
    supports_text_only_turn: bool
    requires_model_runner_kv: bool
    requires_native_stage_role: bool


class _NativeFile(_Strict):
    family: str = Field(min_length=1)
    session_mode: Literal["duplex", "turn"]
    tools: bool
    audio: _Audio
    horizon: _Horizon
    input: _Input
    output: _Output
    turns: _Turns
    session: _Session
    voice: _Voice
    extra_body: _ExtraBody
    capabilities: _Capabilities
    quirks: dict[str, dict[str, Any]]

    @model_validator(mode="after")
    def _turn_mode(self) -> _NativeFile:
        if self.session_mode == "turn" and not self.turns.forward_commit:
            raise ValueError("session_mode turn: commits are all it answers, so turns.forward_commit is true")
        return self


def native_names() -> tuple[str, ...]:
    """Families with a native profile."""
    return tuple(sorted(path.parent.name for path in PROFILES.glob(f"*/{FILE}")))


@cache
def native_profile(family: str) -> NativeProfile:
    """The profile of ``family`` (a folder here), or of a folder by path. Raises :class:`NativeError`."""
    folder = PROFILES / family
    if not (folder / FILE).is_file():
        folder = Path(family)
    path = folder / FILE
    if not path.is_file():
        raise NativeError(f"no native profile {family!r}; known: {', '.join(native_names())}")
    where = f"{folder.name}/{FILE}"
    text = path.read_text(encoding="utf-8")
    try:
        read = _NativeFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise NativeError(f"{where}: {error}") from error
    except ValidationError as error:
        raise NativeError(f"{where}: {_faults(error)}") from error
    if read.family != folder.name:
        raise NativeError(f"{where}: family: {read.family!r} lies in a folder called {folder.name!r}")
    return _profile(read, hashlib.sha256(text.encode()).hexdigest()[:16])


def _faults(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, f['loc'])) or 'the file'}: {f['msg']}" for f in error.errors())


def _profile(read: _NativeFile, digest: str) -> NativeProfile:
    horizon, turns, session, voice = read.horizon, read.turns, read.session, read.voice
    return NativeProfile(
        family=read.family,
        digest=digest,
        session_mode=read.session_mode,
        audio=Audio(**read.audio.model_dump()),
        horizon=_horizon(horizon),
        required_input=tuple(read.input.required),
        optional_input=tuple(read.input.optional),
        output=tuple(read.output.modalities),
        adapter_patterns=tuple(read.capabilities.adapter_patterns),
        input_modes=tuple(read.capabilities.input_modes),
        auto_response=turns.auto_response,
        barge_in=turns.barge_in,
        server_vad=turns.server_vad,
        response_create=turns.response_create,
        resume=session.resume,
        forward_commit=turns.forward_commit,
        silence_continuation=SilenceContinuation(turns.silence_continuation),
        target_barge_in_latency_ms=turns.target_barge_in_latency_ms,
        max_lead_units=session.max_lead_units,
        max_sessions=session.max_sessions,
        frame_units=read.input.frame_units,
        frames_per_unit=read.input.frames_per_unit,
        tools=read.tools,
        voice=VoiceRule(voice.rule),
        default_voice=voice.default,
        persona=voice.persona,
        reference_audio=ReferenceAudio(voice.reference_audio),
        text_follows_audio=read.output.text_follows_audio,
        concurrent_turns=turns.concurrent_turns,
        max_transcript_bytes=read.output.max_transcript_bytes,
        reserved_keys=tuple(read.extra_body.reserved_keys),
        extra_body=MappingProxyType(read.extra_body.always),
        capabilities=MappingProxyType(_capabilities(read)),
        quirks=MappingProxyType(read.quirks),
    )


def _horizon(read: _Horizon) -> Horizon:
    counted = Counted(**read.counted.model_dump()) if read.counted is not None else None
    return Horizon(**{**read.model_dump(), "seed": Seed(read.seed), "counted": counted})


def _capabilities(read: _NativeFile) -> dict[str, Any]:
    """Everything an engine of ``max_sessions`` sessions is expected to advertise."""
    duplex, several = read.session_mode == "duplex", read.session.max_sessions > 1
    return {
        **_SAME_EVERYWHERE,
        **read.capabilities.model_dump(),
        "chunk_period_ms": read.audio.unit_ms,
        "implementation_level": "model_native_duplex" if duplex else "turn_based_duplex",
        "optional_input_modalities": sorted(read.input.optional),
        "required_input_modalities": sorted(read.input.required),
        "supports_barge_in": read.turns.barge_in,
        "supports_concurrent_turn_requests": read.turns.concurrent_turns,
        "supports_model_native_turn_policy": duplex,
        "supports_multi_session": several,
        "supports_multi_session_same_replica": several,
        "supports_session_resume": read.session.resume,
        "supports_turn_commit_only": not duplex,
    }
