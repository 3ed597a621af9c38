"""Overlap: what to do with input that comes while a response is being made or is still being played.

One function, ``decide``: the first row that matches wins. A duration alone never interrupts: of the two
legal policies one never barges in and the other does so on speech, so ``overlap_barge_in_ms`` is reported but
decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OverlapPolicy(StrEnum):
    LISTEN_ONLY = "listen_only"
    BARGE_IN_ON_SPEECH = "barge_in_on_speech"


class OverlapAction(StrEnum):
    LISTEN = "listen"
    DROP = "drop"
    BARGE_IN = "barge_in"


BARGE_IN_HINTS = frozenset({"barge_in", "interrupt", "cancel"})
LISTEN_HINTS = frozenset({"listen", "continue", "continue_output", "ack"})
DROP_HINTS = frozenset({"drop", "ignore", "silence"})

_SHORT_ACKNOWLEDGEMENTS = frozenset(
    (
        *("yes", "yeah", "yep", "ok", "okay", "continue", "goon", "right", "keepgoing", "pleasecontinue"),
        *("嗯", "嗯嗯", "对", "对的", "好", "好的", "继续", "继续说", "可以", "是的"),
    )
)


@dataclass(frozen=True, slots=True)
class OverlapSettings:
    """What of the session's configuration and of the model's capabilities bears on the decision.

    :param video_alone: a frame without audio is input on its own
    :param short_ack_ms: speech up to this long is taken for an acknowledgement
    """

    auto_response: bool
    policy: OverlapPolicy
    supports_barge_in: bool
    video_alone: bool
    short_ack_ms: float = 700.0


@dataclass(frozen=True, slots=True)
class OverlapInput:
    """One append as the decision sees it; hints as the client gave them.

    :param duration_ms: of its audio
    :param vad_started: the session's own detector heard an utterance begin in this append
    :param vad_active: the detector already was inside an utterance
    """

    is_speech: bool
    has_frames: bool = False
    duration_ms: float = 0.0
    action_hint: str | None = None
    force_barge_in: bool = False
    force_listen: bool = False
    transcript: str | None = None
    vad_started: bool = False
    vad_active: bool = False

    @property
    def wants_barge_in(self) -> bool:
        return self.force_barge_in or self.action_hint in BARGE_IN_HINTS


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    """What was decided, and the counter of overlapping speech after it.

    :param buffered: the audio stays part of the user's open item
    :param deferred: it is kept from the engine until the response is over
    :param refused_hint: the client asked for a barge-in that the model cannot do: tell it once
    :param cancel_reason: why the response ends, when it does
    """

    action: OverlapAction
    reason: str
    buffered: bool
    deferred: bool
    overlap_speech_ms: float
    refused_hint: bool = False
    cancel_reason: str | None = None


def applies(settings: OverlapSettings, given: OverlapInput) -> bool:
    """False when input simply streams to a model that decides for itself: no decision, no event."""
    if not settings.auto_response:
        return True
    return settings.supports_barge_in and (
        settings.policy is OverlapPolicy.BARGE_IN_ON_SPEECH or given.wants_barge_in
    )


def decide(settings: OverlapSettings, given: OverlapInput, overlap_speech_ms: float) -> OverlapDecision:
    """Decide on one append. ``overlap_speech_ms``: overlapping speech counted so far."""
    hint, force_barge_in = given.action_hint, given.force_barge_in
    refused = given.wants_barge_in and not settings.supports_barge_in
    if refused:
        force_barge_in = False
        hint = None if hint in BARGE_IN_HINTS else hint
    speech, duration = given.is_speech, given.duration_ms
    on_speech = settings.policy is OverlapPolicy.BARGE_IN_ON_SPEECH
    seen = overlap_speech_ms

    def listen(reason: str, *, buffered: bool, deferred: bool, counter: float = seen) -> OverlapDecision:
        return OverlapDecision(OverlapAction.LISTEN, reason, buffered, deferred, counter, refused)

    def drop(reason: str, counter: float = seen) -> OverlapDecision:
        return OverlapDecision(OverlapAction.DROP, reason, False, False, counter, refused)

    def barge_in(reason: str, cancel_reason: str = "barge_in") -> OverlapDecision:
        if not settings.supports_barge_in:
            return listen("barge_in_unsupported", buffered=speech, deferred=True)
        action = OverlapAction.BARGE_IN
        return OverlapDecision(action, reason, True, False, 0.0, refused, cancel_reason)

    def spoke(without_detector: str) -> OverlapDecision:
        if given.vad_started:
            return barge_in("server_vad_speech_started", "turn_detected")
        return barge_in(without_detector)

    if hint in BARGE_IN_HINTS:
        return barge_in("client_overlap_action")
    if hint in LISTEN_HINTS:
        kept = hint == "listen" and speech and duration > settings.short_ack_ms
        return listen("client_overlap_action", buffered=kept, deferred=True, counter=0.0)
    if hint in DROP_HINTS:
        return drop("client_overlap_action", 0.0)
    if force_barge_in:
        return barge_in("client_force_barge_in")
    if settings.auto_response:
        if on_speech and speech and not given.vad_active:
            return spoke("barge_in_on_speech")
        return listen("auto_response_continuous", buffered=True, deferred=False)
    if given.force_listen:
        return listen("client_force_listen", buffered=speech, deferred=True, counter=0.0)
    if not speech and given.has_frames and settings.video_alone:
        return listen("vision_follow", buffered=True, deferred=False)
    if not speech:
        return drop("silence_or_noise")
    if is_short_acknowledgement(given.transcript):
        return listen("short_ack_transcript", buffered=False, deferred=True, counter=0.0)
    if not on_speech:
        return listen("policy_listen_only", buffered=True, deferred=True, counter=seen + duration)
    if given.vad_active:
        return listen("server_vad_utterance_active", buffered=True, deferred=False)
    return spoke("policy_barge_in_on_speech")


def is_short_acknowledgement(transcript: str | None) -> bool:
    """True for the few words that mean "go on"; case, spaces and punctuation do not matter."""
    spoken = "".join(c for c in (transcript or "").lower() if c.isalnum())
    return spoken in _SHORT_ACKNOWLEDGEMENTS
