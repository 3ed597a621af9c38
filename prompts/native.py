"""What Vigil must know of a full-duplex model that its engine cannot say: ``native.toml``, as immutable data.

What an engine advertises (its capabilities) counts before what is written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SilenceContinuation(StrEnum):
    """Who feeds silence while a response is open and the user sends nothing."""

    ENGINE = "engine"
    VIGIL = "vigil"


class Seed(StrEnum):
    """How a fresh engine session is told what was said before; ``NONE``: it cannot be, so no rollover."""

    INSTRUCTIONS = "instructions"
    TEXT_ITEM = "text_item"
    NONE = "none"


class VoiceRule(StrEnum):
    ANY = "any"
    BUNDLED = "bundled"
    """A bare file name of a voice that ships with the model."""


class ReferenceAudio(StrEnum):
    REQUIRED = "required"
    """Whenever audio is an output modality."""
    OPTIONAL = "optional"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Audio:
    """:param unit_ms: what one append carries at most; ``unit_samples`` the same in samples
    :param input_rate_hz: of the samples that the engine takes; ``input_format`` ``pcm16`` or ``pcm_f32le``
    :param output_rate_hz: of what it says
    :param resample: False: a client must send exactly this rate and format
    """

    unit_ms: int
    unit_samples: int
    input_rate_hz: int
    input_format: str
    output_rate_hz: int
    resample: bool = True


@dataclass(frozen=True, slots=True)
class Counted:
    """Which of the engine's own figures (``stage_metrics``) count its context.

    :param stage: whose context is the one that fills
    :param prompt: name of the figure of what went in; ``output``: of what was said to it
    :param streamed: the session is one request: ``prompt`` is all that went in so far, what was said comes on
        top, and a response's figures are sums over its units. Otherwise each response is a request of its
        own, whose prompt holds all that was said before
    """

    stage: str
    prompt: str
    output: str
    streamed: bool


@dataclass(frozen=True, slots=True)
class Horizon:
    """How long an engine session lasts, in tokens.

    :param context_tokens: of one engine session; ``None``: not known, the session never rolls over
    :param tokens_per_second: of audio in; ``tokens_per_frame`` of one frame group
    :param prefix_tokens: what an empty session starts with
    :param rollover_at: share of the context at which a fresh session is prepared
    :param turn_ends: False: the model's turns have no ends; the switch waits for the longest silence
    :param counted: where the engine tells its own count; ``None``: units and words are counted
    """

    context_tokens: int | None
    tokens_per_second: float
    tokens_per_frame: int
    prefix_tokens: int
    seed: Seed
    seed_max_tokens: int
    rollover_at: float = 0.8
    turn_ends: bool = True
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class NativeProfile:
    """One family.

    :param session_mode: ``duplex``: the model decides when to speak; ``turn``: it answers commits
    :param forward_commit: a client's commit in auto mode reaches the engine
    :param resume: False is final: a session whose client is gone is over
    :param max_lead_units: units that may be ahead of the stream's clock
    :param max_sessions: of one engine, unless its launch says otherwise
    :param frame_units: the engine takes a frame group without audio; otherwise silence is added to it
    :param frames_per_unit: the largest frame group
    :param persona: the client's ``instructions`` are the persona and may not change once audio came
    :param reserved_keys: of ``extra_body``, set by servers only; ``name*`` reserves a prefix
    :param extra_body: sent with every opening event
    :param capabilities: what the engine is expected to advertise; a difference in ``implementation_level``,
        modalities, period or rates is refused, any other is taken from the engine
    :param quirks: known faults of engines by version
    """

    family: str
    digest: str
    session_mode: str
    audio: Audio
    horizon: Horizon
    required_input: tuple[str, ...]
    optional_input: tuple[str, ...]
    output: tuple[str, ...]
    adapter_patterns: tuple[str, ...]
    input_modes: tuple[str, ...]
    auto_response: bool
    barge_in: bool
    server_vad: bool
    response_create: bool
    resume: bool
    forward_commit: bool
    silence_continuation: SilenceContinuation
    target_barge_in_latency_ms: int | None
    max_lead_units: int
    max_sessions: int
    frame_units: bool
    frames_per_unit: int
    tools: bool
    voice: VoiceRule
    default_voice: str | None
    persona: bool
    reference_audio: ReferenceAudio
    text_follows_audio: bool
    concurrent_turns: bool
    max_transcript_bytes: int
    reserved_keys: tuple[str, ...]
    extra_body: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    quirks: Mapping[str, Any]
