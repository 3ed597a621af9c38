"""Event-name dialects: GA names by default, the older beta names for clients that ask for them.

A connection speaks one dialect: GA unless its request carries ``OpenAI-Beta: realtime=v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

_BETA_NAMES: Mapping[str, str] = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
}
_BETA_PARTS: Mapping[str, str] = {"output_text": "text", "output_audio": "audio"}


class Dialect(StrEnum):
    GA = "ga"
    BETA = "beta"


def dialect_of(headers: Mapping[str, str]) -> Dialect:
    """The dialect a WebSocket request asks for (header names in lower case)."""
    asked = headers.get("openai-beta", "")
    return Dialect.BETA if "realtime=v1" in asked.replace(" ", "").split(",") else Dialect.GA


def translate(payload: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The event as the dialect names it.

    Events that only one dialect knows are sent in both: dropping them would leave holes in the sequence.
    """
    if dialect is Dialect.GA:
        return payload
    out = {**payload, "type": _BETA_NAMES.get(payload["type"], payload["type"])}
    if "item" in out:
        out["item"] = _beta_item(out["item"])
    if "response" in out and "output" in out["response"]:
        response = out["response"]
        out["response"] = {**response, "output": [_beta_item(item) for item in response["output"]]}
    return out


def _beta_item(item: dict[str, Any]) -> dict[str, Any]:
    if "content" not in item:
        return item
    parts = [{**p, "type": _BETA_PARTS.get(p["type"], p["type"])} for p in item["content"]]
    return {**item, "content": parts}
