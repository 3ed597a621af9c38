"""The ``session`` object that the server returns: what was configured, where the session stands."""

from __future__ import annotations

from typing import Any

from orchestrator.session.answers import Answers
from orchestrator.session.backend import SessionConfig
from orchestrator.session.capabilities import capabilities_payload
from orchestrator.session.playback import Cursors, PlaybackBook
from orchestrator.session.projection import cursors_of
from orchestrator.session.response import Phase
from orchestrator.session.shared import Shared
from orchestrator.session.states import State
from orchestrator.session.turns import Turns
from orchestrator.wire.audio import AudioFormat, Codec

_SIGNALS = {
    "user_started": "user_speaking",
    "user_committed": "user_committed",
    "assistant_started": "assistant_generating",
    "assistant_done": "idle",
}
SDK_RATE = 24000
"""The only rate that the SDK's types allow on a format object; the true one is in ``sample_rate_hz``."""


def turn_state(answers: Answers, turns: Turns, hears_speech: bool) -> str:
    """Whose turn it looks like."""
    active = answers.active
    if active is not None:
        return "assistant_generating" if active.phase is not Phase.DONE else "idle"
    if turns.submission is not None:
        return "user_committed"
    if turns.item is not None and (turns.item.speech or hears_speech):
        return "user_speaking"
    return "assistant_playing" if answers.responding else "idle"


def signalled_state(event: str, answers: Answers, turns: Turns, hears_speech: bool) -> str:
    """The turn state that a client's remark stands for; any other remark changes nothing."""
    return _SIGNALS.get(event) or turn_state(answers, turns, hears_speech)


def session_object(
    shared: Shared, answers: Answers, turns: Turns, hears_speech: bool, book: PlaybackBook
) -> dict[str, Any]:
    config, detection = shared.config, shared.config.turn_detection
    active = answers.active
    last = book.last()
    vad = None
    if detection is not None:
        vad = {
            "type": "server_vad",
            "threshold": detection.threshold,
            "prefix_padding_ms": detection.prefix_padding_ms,
            "silence_duration_ms": detection.silence_duration_ms,
            "min_speech_duration_ms": detection.min_speech_duration_ms,
            "create_response": detection.create_response,
            "interrupt_response": True,
        }
    states = {State.CLOSING: "closing", State.CLOSED: "closed"}
    view: dict[str, Any] = {
        "object": "realtime.session",
        "type": "realtime",
        "id": shared.session_id,
        "state": states.get(shared.state, "open"),
        "turn_state": turn_state(answers, turns, hears_speech),
        "epoch": shared.fence.epoch,
        "turn_id": shared.fence.turn,
        "active_request_id": None,
        "active_response_id": active.response_id if active is not None else None,
        "active_response_turn_id": active.fence.turn if active is not None else None,
        "model": config.model,
        "modalities": list(shared.modalities),
        "output_modalities": list(shared.modalities),
        "instructions": config.instructions,
        "voice": config.voice,
        "response_format": "wav" if config.output_format.codec is Codec.WAV else "pcm",
        "temperature": config.temperature,
        "max_tokens": config.max_output_tokens,
        "speed": config.speed,
        "idle_timeout_s": config.idle_timeout_s,
        "overlap_policy": config.overlap_policy,
        "overlap_short_ack_ms": config.overlap_short_ack_ms,
        "overlap_barge_in_ms": config.overlap_barge_in_ms,
        "overlap_silence_rms": config.overlap_silence_rms,
        "speech_policy": config.speech_policy,
        "playback_commit_policy": book.policy.value,
        "playback": cursors_of(last.cursors() if last is not None else Cursors()),
        "capabilities": capabilities_payload(shared.capabilities),
        "input_audio_format": config.input_format.codec.value,
        "output_audio_format": config.output_format.codec.value,
        "auto_response": shared.auto,
        "include": list(config.include),
        "turn_detection": vad,
    }
    # Only these are the client's to say: one that sends back a whole session object changes no other.
    theirs: dict[str, Any] = {
        "input_audio_transcription": None,
        "tracing": None,
    }
    return {**theirs, **config.echo, "audio": _audio(config), **view}


def _audio(config: SessionConfig) -> dict[str, Any]:
    """The client's own ``audio`` object, if it sent one, its formats named as the SDK knows them."""
    heard, said, audio = config.input_format, config.output_format, config.echo.get("audio")
    if not isinstance(audio, dict):
        return {
            "input": {"format": _format(heard), "sample_rate_hz": heard.rate},
            "output": {"format": _format(said)},
        }
    shown = dict(audio)
    for side, format_ in (("input", heard), ("output", said)):
        own = audio.get(side)
        if side in audio and not isinstance(own, dict):
            del shown[side]
        elif own is not None and "format" in own and not _is_known(own["format"]):
            rate = {} if format_.rate is None else {"sample_rate_hz": format_.rate}
            shown[side] = {**rate, **own, "format": _format(format_)}
    return shown


def _is_known(value: Any) -> bool:
    """The SDK's types have such a format object."""
    if not isinstance(value, dict):
        return False
    return value.get("type") in ("audio/pcmu", "audio/pcma") or (
        value.get("type") == "audio/pcm" and value.get("rate") in (None, SDK_RATE)
    )


def _format(format_: AudioFormat) -> dict[str, Any]:
    """Named as the SDK knows it, with the one rate that it allows."""
    names = {Codec.PCM16: "audio/pcm", Codec.ULAW: "audio/pcmu", Codec.ALAW: "audio/pcma"}
    out: dict[str, Any] = {"type": names.get(format_.codec, format_.codec.value)}
    if format_.codec is Codec.PCM16 and format_.rate == SDK_RATE:
        out["rate"] = SDK_RATE
    return out
