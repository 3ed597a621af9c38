"""The session object that a client sends, at open or in a later update, turned into a ``SessionConfig``.

Unknown keys are kept and echoed; a known key of the wrong type is ignored, unless a rule below refuses it.
At open every refused value has the code ``invalid_session_config`` and names the culprit in ``param``; in an
update it keeps its own code. Whatever is refused leaves the former configuration as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from orchestrator.session.backend import Capabilities, SessionConfig, SpeechPolicy, TurnDetection
from orchestrator.session.overlap import OverlapPolicy
from orchestrator.wire.audio import AudioFormat, check_rate, parse_format
from orchestrator.wire.client import MAX_NUMBER
from orchestrator.wire.errors import InvalidRequest, Unsupported

Body = Mapping[str, Any]

MAX_ECHO_BYTES = 16 * 1024
"""Unknown keys are echoed as long as all of them stay below this as JSON."""

MAX_EXTRA_BYTES = 64 * 1024
"""``extra_body`` as JSON, over all updates, a reference voice apart."""

MAX_TEXT_CHARS = 64 * 1024
"""Longest instructions, voice name or other text of a session: each comes back in every session object."""

MAX_INCLUDES, MAX_INCLUDE_CHARS = 32, 128

MAX_TEMPERATURE = 2.0

_READ = frozenset(
    {
        *("type", "id", "session_id", "object", "model", "modalities", "output_modalities", "instructions"),
        *(
            "persona",
            "language",
            "max_pixels",
            "seed",
            "voice",
            "ref_audio",
            "input_audio_format",
            "output_audio_format",
        ),
        *("response_format", "sample_rate_hz", "sample_rate", "turn_detection", "overlap_policy"),
        *("overlap_short_ack_ms", "overlap_barge_in_ms", "overlap_silence_rms", "playback_commit_policy"),
        *("temperature", "max_response_output_tokens", "max_output_tokens", "max_tokens", "speed"),
        *(
            "speech_policy",
            "idle_timeout_s",
            "include",
            "extra_body",
            "state",
            "epoch",
            "capabilities",
            "playback",
        ),
    }
)
_VOICES = frozenset({"ref_audio", "tts_ref_audio"})
_UNLIMITED = frozenset({"inf", "infinity", "unlimited"})
_VAD_NUMBERS = ("threshold", "prefix_padding_ms", "silence_duration_ms", "min_speech_duration_ms")
_VAD_KEYS = frozenset({"type", "create_response", "interrupt_response", "idle_timeout_ms", *_VAD_NUMBERS})
MIN_SPEECH_FLOOR_MS = 32
DEFAULT_THRESHOLD = TurnDetection().threshold


def opened(body: Body, defaults: SessionConfig, capabilities: Capabilities) -> SessionConfig:
    """The configuration that a session opens with; ``defaults`` are the profile's and the connection's."""
    try:
        return _applied(body, defaults, capabilities)
    except InvalidRequest as error:
        if error.code in ("unsupported_audio_format", "unsupported_turn_detection", "bad_event"):
            error.code = "invalid_session_config"
        raise


def updated(body: Body, current: SessionConfig, capabilities: Capabilities) -> SessionConfig:
    """The configuration after an update; keys that are absent stay as they are."""
    model = body.get("model")
    if isinstance(model, str) and model != current.model:
        raise InvalidRequest(
            "the model of a session cannot change; open a new session",
            code="model_update_unsupported",
            param="model",
        )
    extra = _object(body, "extra_body")
    if any(each.keys() & _VOICES for each in (body, extra)):
        raise InvalidRequest(
            "the reference voice is given when the session opens",
            code="ref_audio_update_unsupported",
            param="ref_audio",
        )
    return _applied(body, current, capabilities)


def _applied(body: Body, base: SessionConfig, capabilities: Capabilities) -> SessionConfig:
    extra = _object(body, "extra_body")
    audio = _object(body, "audio")
    heard, said = _object(audio, "input"), _object(audio, "output")
    _refuse_reserved(extra, capabilities)
    _refuse_unsupported(body, extra, capabilities)
    config = replace(
        base,
        input_format=_input_format(body, heard, base.input_format),
        output_format=output_format_of(body, base.output_format),
        modalities=_modalities(body, base.modalities),
        echo=_echo({**_flattened(heard), **body}, base.echo),
        extra_body=_passed_on(body, extra, base.extra_body),
    )
    config = _with_turn_taking(config, body, heard, extra)
    voice = _text(said, "voice", _text(body, "voice", base.voice))
    return replace(
        config,
        model=_text(body, "model", base.model) or base.model,
        persona=_text(extra, "persona", _text(body, "persona", base.persona)),
        language=_text(extra, "language", _text(body, "language", base.language)),
        instructions=_text(body, "instructions", base.instructions),
        opening_text=_text(
            body, "initial_user_text", _text(extra, "duplex_initial_user_text", base.opening_text)
        ),
        voice=voice,
        max_pixels=_whole(extra, "max_pixels", _whole(body, "max_pixels", base.max_pixels)),
        seed=_whole(extra, "seed", _whole(body, "seed", base.seed)),
        auto_response=_auto_response(extra, base.auto_response),
        temperature=temperature_of(body, base.temperature),
        speed=_number(said, "speed", _number(body, "speed", base.speed)),
        max_output_tokens=_max_tokens(body, base.max_output_tokens),
        overlap_short_ack_ms=_amount(body, extra, "overlap_short_ack_ms", base.overlap_short_ack_ms),
        overlap_barge_in_ms=_amount(body, extra, "overlap_barge_in_ms", base.overlap_barge_in_ms),
        overlap_silence_rms=_amount(body, extra, "overlap_silence_rms", base.overlap_silence_rms),
        speech_policy=_speech_policy(body, extra, base.speech_policy),
        idle_timeout_s=_amount(body, {}, "idle_timeout_s", base.idle_timeout_s),
        include=_include(body, base.include),
    )


def _speech_policy(body: Body, extra: Body, base: SpeechPolicy | None) -> SpeechPolicy | None:
    value = extra.get("speech_policy", body.get("speech_policy"))
    if value is None:
        return base
    if not isinstance(value, str) or value not in tuple(SpeechPolicy):
        raise InvalidRequest(
            f"speech_policy is one of {', '.join(SpeechPolicy)}",
            code="invalid_speech_policy",
            param="speech_policy",
        )
    return SpeechPolicy(value)


# --- media -----------------------------------------------------------------------------------------------


def _input_format(body: Body, heard: Body, base: AudioFormat) -> AudioFormat:
    value = _first(body.get("input_audio_format"), heard.get("format"))
    format_ = base if value is None else parse_format(value)
    for source in (body, heard):
        for key in ("sample_rate_hz", "sample_rate"):
            if source.get(key) is not None:
                return AudioFormat(format_.codec, check_rate(source[key], param=key))
    if value is not None and format_.rate is None:
        return AudioFormat(format_.codec, base.rate if format_.codec is base.codec else None)
    return format_


def output_format_of(body: Body, base: AudioFormat) -> AudioFormat:
    """The output format that a session or a response object asks for."""
    said = _object(_object(body, "audio"), "output")
    value = _first(body.get("output_audio_format"), body.get("response_format"), said.get("format"))
    format_ = base if value is None else parse_format(value, output=True, param="output_audio_format")
    for key in ("sample_rate_hz", "sample_rate"):
        if said.get(key) is not None:
            return AudioFormat(format_.codec, check_rate(said[key], param=f"audio.output.{key}"))
    return format_


def _first(*values: Any) -> Any:
    """Of several names for one thing the first that says something."""
    return next((value for value in values if value is not None), None)


def _modalities(body: Body, base: tuple[str, ...]) -> tuple[str, ...]:
    for key in ("modalities", "output_modalities"):
        value = body.get(key)
        if isinstance(value, list) and value:
            if unknown := [each for each in value if each not in ("text", "audio")]:
                raise InvalidRequest(
                    f"unknown output modality {unknown[0]!r}; use text and audio",
                    code="unsupported_response_modality",
                    param=key,
                )
            return tuple(dict.fromkeys(value))
    return base


# --- turn taking -----------------------------------------------------------------------------------------


def _with_turn_taking(config: SessionConfig, body: Body, heard: Body, extra: Body) -> SessionConfig:
    """Detector and overlap policy: they imply each other and may not contradict."""
    detection, given = config.turn_detection, False
    for source in (body, heard):  # the nested one wins
        if "turn_detection" in source:
            detection, given = parse_turn_detection(source["turn_detection"]), True
    implied = OverlapPolicy.LISTEN_ONLY if detection is None else OverlapPolicy.BARGE_IN_ON_SPEECH
    asked = extra.get("overlap_policy", body.get("overlap_policy"))
    if isinstance(asked, str):
        wanted = asked if asked in tuple(OverlapPolicy) else OverlapPolicy.LISTEN_ONLY
        if wanted != implied:
            raise InvalidRequest(
                f"overlap_policy {wanted} contradicts turn_detection; barge_in_on_speech needs server_vad",
                code="unsupported_turn_detection",
                param="overlap_policy",
            )
    policy = implied if given or isinstance(asked, str) else config.overlap_policy
    return replace(config, turn_detection=detection, overlap_policy=str(policy))


def parse_turn_detection(value: Any) -> TurnDetection | None:
    """``null`` or a ``server_vad`` object; anything else is ``unsupported_turn_detection``."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") != "server_vad":
        raise _bad_detection("only null and server_vad are supported")
    if unknown := sorted(set(value) - _VAD_KEYS):
        raise _bad_detection(f"unknown key {unknown[0]!r}")
    numbers: dict[str, float] = {}
    for key in _VAD_NUMBERS:
        if (number := value.get(key)) is None:
            continue
        if not _is_number(number) or number < 0:
            raise _bad_detection(f"{key} is a number from 0 on")
        numbers[key] = number
    threshold = numbers.pop("threshold", DEFAULT_THRESHOLD)
    if not 0.15 < threshold <= 1:
        raise _bad_detection("threshold lies above 0.15 and is at most 1")
    create = value.get("create_response", True)
    if not isinstance(create, bool):
        raise _bad_detection("create_response is a boolean")
    if value.get("interrupt_response", True) is not True:
        raise _bad_detection("interrupt_response must be true")
    times = {key: int(number) for key, number in numbers.items()}
    if "min_speech_duration_ms" in times:
        times["min_speech_duration_ms"] = max(times["min_speech_duration_ms"], MIN_SPEECH_FLOOR_MS)
    return TurnDetection(threshold=float(threshold), create_response=create, **times)


def _bad_detection(why: str) -> InvalidRequest:
    return InvalidRequest(f"turn_detection: {why}", code="unsupported_turn_detection", param="turn_detection")


def _auto_response(extra: Body, base: bool | None) -> bool | None:
    for key in ("auto_response", "full_duplex"):
        if isinstance(extra.get(key), bool):
            return bool(extra[key])
    return base


# --- keys passed on and echoed ---------------------------------------------------------------------------


def _refuse_reserved(extra: Body, capabilities: Capabilities) -> None:
    whole = {name for name in capabilities.reserved_keys if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in capabilities.reserved_keys if name.endswith("*"))
    if taken := sorted(key for key in extra if key in whole or (prefixes and key.startswith(prefixes))):
        raise InvalidRequest(
            f"only the server sets {', '.join(taken)}; leave them out",
            code="invalid_duplex_runtime_config",
            param="extra_body",
        )


def _refuse_unsupported(body: Body, extra: Body, capabilities: Capabilities) -> None:
    """By whichever door it is asked for."""
    if not capabilities.client_tools:
        for source, key, where in ((body, "tools", "tools"), (extra, "realtime_tools", "extra_body")):
            if source.get(key):
                raise Unsupported(
                    "this model takes no tools from clients", code="unsupported_tools", param=where
                )
    for source, where in ((body, "cameras"), (extra, "extra_body")):
        cameras = source.get("cameras")
        number = len(cameras) if isinstance(cameras, list) else cameras
        if isinstance(number, int | float) and number > 1:
            raise Unsupported(
                "a session watches one camera; open a session for each",
                code="unsupported_cameras",
                param=where,
            )


def _passed_on(body: Body, extra: Body, base: Mapping[str, Any]) -> dict[str, Any]:
    """``extra_body`` for the model; a reference voice goes with it and is never echoed."""
    passed = {**base, **extra}
    try:
        size = len(orjson.dumps({key: value for key, value in passed.items() if key not in _VOICES}))
    except TypeError as error:
        raise InvalidRequest("extra_body: it cannot be kept", code="bad_event", param="extra_body") from error
    if size > MAX_EXTRA_BYTES:
        raise InvalidRequest(
            f"extra_body has {size} bytes as JSON; at most {MAX_EXTRA_BYTES} are kept",
            code="bad_event",
            param="extra_body",
        )
    voice = body.get("ref_audio")
    return passed if voice is None else {**passed, "ref_audio": voice}


def _flattened(heard: Body) -> Body:
    """What ``audio.input`` says that has a name of its own as well."""
    names = {"transcription": "input_audio_transcription", "noise_reduction": "input_audio_noise_reduction"}
    return {name: heard[own] for own, name in names.items() if own in heard}


def _echo(body: Body, base: Mapping[str, Any]) -> Mapping[str, Any]:
    echo = dict(base)
    for key, value in body.items():
        if key in _READ:
            continue
        kept = {**echo, key: value}
        try:
            fits = len(orjson.dumps(kept)) <= MAX_ECHO_BYTES
        except TypeError:
            continue  # a number that JSON as we write it cannot hold
        if fits:
            echo = kept
    return echo


# --- single values ---------------------------------------------------------------------------------------


def _object(body: Body, key: str) -> Body:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _text(body: Body, key: str, base: str | None) -> str | None:
    value = body.get(key, base)
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        raise InvalidRequest(
            f"{key} has {len(value)} characters; at most {MAX_TEXT_CHARS} are taken",
            code="bad_event",
            param=key,
        )
    return value if value is None or isinstance(value, str) else base


def _is_number(value: Any) -> bool:
    """A number that can be rounded and written again."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(value) and abs(value) <= MAX_NUMBER


def _number(body: Body, key: str, base: float | None) -> float | None:
    value = body.get(key, base)
    return value if value is None or _is_number(value) else base


def temperature_of(body: Body, base: float | None) -> float | None:
    """Every engine takes 0 to 2; with another value each decision would be refused, so it is none."""
    value = _number(body, "temperature", base)
    return value if value is None or 0 <= value <= MAX_TEMPERATURE else base


def _amount(body: Body, extra: Body, key: str, base: float) -> float:
    """A number from 0 on; ``extra_body`` overrides the top level."""
    for source in (extra, body):
        value = source.get(key, -1)
        if _is_number(value) and value >= 0:
            return float(value)
    return base


def _whole(body: Body, key: str, base: int | None) -> int | None:
    value = body.get(key, base)
    return value if isinstance(value, int) and not isinstance(value, bool) else base


def _max_tokens(body: Body, base: int | None) -> int | None:
    for key in ("max_response_output_tokens", "max_output_tokens", "max_tokens"):
        value = body.get(key)
        if isinstance(value, str) and value.lower() in _UNLIMITED:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_NUMBER:
            return value
    return base


def _include(body: Body, base: tuple[str, ...]) -> tuple[str, ...]:
    value = body.get("include")
    if not isinstance(value, list):
        return base
    names = [each for each in value if isinstance(each, str) and len(each) <= MAX_INCLUDE_CHARS]
    return tuple(names[:MAX_INCLUDES])
