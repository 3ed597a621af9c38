"""The fake engine's front end: parsing, pictures, and refusals in stock vLLM's words."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Mapping
from typing import Any

import orjson
from PIL import Image

from tests.fakes.engine_script import Seen


class Refusal(Exception):
    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


def parse_body(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as bad:
        raise Refusal(400, f"JSON decode error: {bad}") from bad
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise Refusal(400, "Field required: messages")
    return data


def parse_ids(body: bytes) -> dict[str, Any]:
    """A body of the token route in the shape of a chat body: its pictures as those of one message."""
    data = orjson.loads(body)
    if not data.get("token_ids"):
        raise Refusal(400, "Field required: token_ids")
    parts = [
        {**part, "image_url": None if part["url"] is None else {"url": part["url"]}}
        for part in data.pop("content_parts", [])
    ]
    if told := data.pop("features", None):
        parts = [
            {"type": "image_url", "image_url": None, "uuid": uuid} for uuid in told["mm_hashes"]["image"]
        ]
        data["ranges"] = told["mm_placeholders"]["image"]
    sampling = data.pop("sampling_params")
    if "logprobs" in sampling:
        sampling |= {"logprobs": True, "top_logprobs": sampling["logprobs"]}
    return {**data, **sampling, "messages": [{"role": "user", "content": parts}]}


def image_parts(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        part
        for message in body["messages"]
        if not isinstance(message.get("content") or "", str)
        for part in message["content"]
        if part.get("type") == "image_url"
    ]


def image_key(part: Mapping[str, Any]) -> str:
    """An image is its uuid, or else its content."""
    uuid = part.get("uuid")
    if uuid is None:
        uuid = hashlib.blake2b(part["image_url"]["url"].encode(), digest_size=16).hexdigest()
    return uuid


def measure(url: str, fixed: int | None) -> int:
    """Tokens of an image: ``fixed``, or by its size once it has been decoded."""
    if fixed is not None:
        return fixed
    try:
        data = base64.b64decode(url.partition(";base64,")[2], validate=True)
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            image.load()
    except (OSError, binascii.Error) as bad:
        raise Refusal(400, f"Failed to load image: {bad}") from bad
    return max(1, round(width / 32)) * max(1, round(height / 32))


def check_length(seen: Seen, context_tokens: int) -> None:
    if seen.prompt_tokens < context_tokens:
        return
    if seen.images:
        raise Refusal(
            400,
            f"Input length ({seen.prompt_tokens}) exceeds model's maximum context length ({context_tokens}).",
        )
    raise Refusal(
        400,
        f"This model's maximum context length is {context_tokens} tokens. However, your prompt "
        f"contains {seen.prompt_tokens} input tokens, which exceeds this limit even without any output "
        "tokens. Please reduce the length of the input prompt. "
        f"(parameter=input_tokens, value={seen.prompt_tokens})",
        "input_tokens",
    )
