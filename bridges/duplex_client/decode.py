"""Fields of the engine's events, checked: audio of every format, text marks, metrics, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridges.duplex_client.link import LinkCode
from orchestrator.wire.audio import (
    Codec,
    check_rate,
    float_to_pcm16,
    from_base64,
    g711_to_float,
    parse_format,
    read_wav,
)
from orchestrator.wire.errors import InvalidRequest

NOTHING: Mapping[str, Any] = {}
_RETRYABLE = frozenset({"resource_exhausted", "input_backpressure", "output_backpressure"})
MAX_SAID_CHARS = 500
_REQUEST = ("source", "measurement_origin", "ttft_ms", "ttfp_ms")


class Malformed(Exception):
    """An event breaks the contract; the message says where."""


@dataclass(frozen=True, slots=True)
class Said:
    """One error event, whichever shape it had."""

    code: str
    message: str
    event_id: str | None
    retryable: bool


@dataclass(frozen=True, slots=True)
class OutputAudio:
    """How the session's audio comes where a delta does not say it itself."""

    format: Any = "pcm16"
    rate_hz: int | None = None

    @classmethod
    def of(cls, session: Mapping[str, Any]) -> OutputAudio:
        described = mapping(mapping(session.get("audio")).get("output"))
        rate = described.get("sample_rate_hz", mapping(described.get("format")).get("rate"))
        return cls(session.get("output_audio_format") or described.get("format") or "pcm16", whole(rate))


def mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one where it is something else."""
    return value if isinstance(value, Mapping) else NOTHING


def whole(value: Any) -> int | None:
    """A number of nought or more, else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:
        return None
    return int(value) if value != float("inf") else None


def text(event: Mapping[str, Any], key: str) -> str:
    found = event.get(key)
    if not isinstance(found, str):
        raise Malformed(f"`{key}` is no string")
    return found


def name_of(event: Mapping[str, Any], key: str) -> str:
    found = text(event, key)
    if not found:
        raise Malformed(f"`{key}` is empty")
    return found


def milliseconds(event: Mapping[str, Any], key: str) -> int:
    found = whole(event.get(key))
    if found is None:
        raise Malformed(f"`{key}` is no time in ms")
    return found


def response_id(event: Mapping[str, Any]) -> str:
    """At the top, or in the response."""
    found = event.get("response_id", mapping(event.get("response")).get("id"))
    if not isinstance(found, str) or not found:
        raise Malformed("it names no response")
    return found


def audio(event: Mapping[str, Any], usual: OutputAudio) -> tuple[bytes, int]:
    """PCM16 little-endian mono of one delta, and its rate in Hz."""
    payload = event.get("delta", event.get("audio"))
    if not isinstance(payload, str):
        raise Malformed("`delta` is no string")
    stated = event.get("sample_rate_hz")
    try:
        fmt = parse_format(event.get("format") or usual.format, output=True, param="format")
        data = from_base64(payload, strict=True)
        if fmt.codec is Codec.WAV:
            if not data:
                return b"", usual.rate_hz or 24000
            samples, rate = read_wav(data)
            return float_to_pcm16(samples), rate
        compressed = fmt.codec in (Codec.ULAW, Codec.ALAW)
        rate = check_rate(stated or fmt.rate or usual.rate_hz or (8000 if compressed else 24000))
        if compressed:
            return float_to_pcm16(g711_to_float(data, fmt.codec)), rate
    except InvalidRequest as bad:
        raise Malformed(bad.message) from bad
    if len(data) % 2:
        raise Malformed("the audio ends within a sample")
    return data, rate


def marks(metadata: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """(characters, ms) pairs of ``audio_text_marks``."""
    found = metadata.get("audio_text_marks")
    if found is None:
        return ()
    if not isinstance(found, list):
        raise Malformed("`audio_text_marks` is no list")
    pairs = []
    for mark in found:
        chars, end_ms = whole(mapping(mark).get("text_chars")), whole(mapping(mark).get("audio_end_ms"))
        if chars is None or end_ms is None:
            raise Malformed("a text mark has `text_chars` and `audio_end_ms`")
        pairs.append((chars, end_ms))
    return tuple(pairs)


def stages(event: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Stage metrics: at the top, in the metadata, or in the response's; the first place that has any."""
    inner = mapping(mapping(event.get("response")).get("metadata"))
    for place in (event, mapping(event.get("metadata")), inner):
        found = mapping(mapping(place.get("vllm_omni")).get("stage_metrics"))
        kept = {str(stage): values for stage, values in found.items() if isinstance(values, Mapping)}
        if kept:
            return kept
    return {}


def request_metrics(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """``response_request_metrics``: beside the stage metrics, or where a response is announced."""
    inner = mapping(mapping(event.get("response")).get("metadata"))
    places = [mapping(place.get("vllm_omni")) for place in (event, mapping(event.get("metadata")), inner)]
    for place in (*places, mapping(inner.get("duplex_event"))):
        if found := mapping(place.get("response_request_metrics")):
            return {key: found[key] for key in _REQUEST if key in found}
    return {}


def error(event: Mapping[str, Any]) -> Said:
    """Both shapes: ``error`` an object, or the flat one with ``code`` beside the text."""
    nested = event.get("error")
    if isinstance(nested, Mapping):
        code, message, named = nested.get("code"), nested.get("message"), nested.get("event_id")
    else:
        code, message, named = event.get("code"), nested, None
        nested = event
    if not isinstance(code, str) or not code:
        raise Malformed("an error without a code")
    said = message if isinstance(message, str) and message else code
    retryable = nested.get("retryable") is True or code in _RETRYABLE
    return Said(code, said[:MAX_SAID_CHARS], named if isinstance(named, str) else None, retryable)


BAD = LinkCode.BAD_ENGINE_EVENT.value
