"""Plain chat for the engine: only what OpenAI's clients send, rebuilt field by field.

The engine takes far more from a body than a client should reach through us: image ids that name other
people's frames, cache salts, priorities, URLs that it would fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.api.images import decode_data_url
from orchestrator.wire.errors import InvalidRequest

_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "reasoning_effort",
)
_MESSAGE_FIELDS = ("role", "name", "tool_calls", "tool_call_id")


def text_request(body: Mapping[str, Any], model: str, frame_bytes: int) -> dict[str, Any]:
    """:param frame_bytes: largest encoded image of the history"""
    if body.get("n") not in (None, 1):
        raise InvalidRequest("only one choice is generated; leave n out or set it to 1", param="n")
    out = {name: body[name] for name in _FIELDS if body.get(name) is not None}
    out["model"] = model
    out["messages"] = [
        _message(message, f"messages.{index}", frame_bytes) for index, message in enumerate(body["messages"])
    ]
    return out


def _message(message: Mapping[str, Any], where: str, frame_bytes: int) -> dict[str, Any]:
    out = {name: message[name] for name in _MESSAGE_FIELDS if name in message}
    content = message.get("content")
    if isinstance(content, list):
        out["content"] = [_part(part, f"{where}.content.{i}", frame_bytes) for i, part in enumerate(content)]
    elif content is None or isinstance(content, str):
        out["content"] = content
    else:
        raise InvalidRequest("content must be a string or a list of parts", param=f"{where}.content")
    return out


def _part(part: Any, where: str, frame_bytes: int) -> dict[str, Any]:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    image = part.get("image_url") if isinstance(part, dict) and part.get("type") == "image_url" else None
    if isinstance(image, dict) and isinstance(image.get("url"), str):
        decode_data_url(image["url"], frame_bytes, f"{where}.image_url")
        return {"type": "image_url", "image_url": {"url": image["url"]}}
    raise InvalidRequest(
        "without a session id only text and data: images are taken", code="unsupported_content", param=where
    )
