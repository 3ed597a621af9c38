"""From an engine's status and message to a typed error. Wordings are those of vLLM 0.25 to 0.32."""

from __future__ import annotations

import re

import orjson

from bridges.engine import (
    BadImage,
    ContextOverflow,
    EngineDenied,
    EngineError,
    EngineRefused,
    EngineServerError,
    TooManyImages,
)

_LIMIT = re.compile(r"At most (\d+) image")
_CONTEXT = re.compile(r"maximum context length|longer than the maximum model length|exceeds? .*max_model_len")
_BAD_IMAGE = re.compile(
    r"Failed to load image|cannot identify image|image file is truncated|broken data stream"
    r"|Image dimensions .* exceed|Invalid base64|Incorrect padding|Only base64 data",
    re.IGNORECASE,
)
_MISS = re.compile(r"Cache miss for image")
_BUSY = (408, 429)
_DENIED = (401, 403, 404, 405)


class ImageNotHeld(EngineRefused):
    """The engine does not hold an image that was sent by its uuid alone; a retry with payloads mends it."""

    code = "image_not_held"


def message_of(body: bytes) -> str:
    """The message inside an error body: OpenAI's shape, FastAPI's ``detail``, or the text as it is."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "ignore").strip()[:500]
    if isinstance(data, dict):
        error = data.get("error", data)
        if isinstance(error, dict):
            error = error.get("message") or error.get("detail") or error
        return error if isinstance(error, str) else orjson.dumps(error).decode()[:500]
    return str(data)[:500]


def refusal(status: int, message: str) -> EngineError:
    """The error for an HTTP ``status`` (or the code of an error inside a stream) and its message."""
    text = message or f"the engine answered {status}"
    if status >= 500 or status in _BUSY:
        return EngineServerError(text)
    if status in _DENIED:
        return EngineDenied(text)
    if _MISS.search(text):
        return ImageNotHeld(text)
    if match := _LIMIT.search(text):
        return TooManyImages(text, int(match[1]))
    if _CONTEXT.search(text):
        return ContextOverflow(text)
    if _BAD_IMAGE.search(text):
        return BadImage(text)
    return EngineRefused(text)
