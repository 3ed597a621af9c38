"""OpenAPI descriptions of bodies that are read by hand, because several dialects are understood."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path

_STRING: dict[str, Any] = {"type": "string"}
SESSION_ID: dict[str, Any] = {
    "type": "string",
    "pattern": "^[\\x21-\\x7e]([\\x20-\\x7e]{0,126}[\\x21-\\x7e])?$",
}
_RANGE: dict[str, Any] = {
    "description": "seconds on the media clock: 12.0, [12.0, 13.0], '12.0-13.0' or {start, end}",
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string"},
        {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 1, "maxItems": 2},
        {"type": "object"},
    ],
}
_PART: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": _STRING},
        },
        {
            "type": "object",
            "required": ["type", "image_url"],
            "properties": {
                "type": {"const": "image_url"},
                "image_url": {
                    "type": "object",
                    "required": ["url"],
                    "properties": {"url": {"type": "string", "description": "data:image/jpeg;base64,..."}},
                },
            },
        },
    ]
}
_SESSION: dict[str, Any] = {"session_id": SESSION_ID, "user": SESSION_ID}


def _body(
    properties: dict[str, Any], required: tuple[str, ...] = (), *, needed: bool = True
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": True}
    if required:
        schema["required"] = list(required)
    return {"requestBody": {"required": needed, "content": {"application/json": {"schema": schema}}}}


def _headers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "header", "required": False, "schema": _STRING} for name in names]


_SESSION_HEADERS = _headers("x-streaming-session", "x-session-id")

CHAT: dict[str, Any] = {
    **_body(
        {
            **_SESSION,
            "model": _STRING,
            "messages": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["role"],
                    "properties": {
                        "role": _STRING,
                        "content": {"anyOf": [_STRING, {"type": "array", "items": _PART}, {"type": "null"}]},
                    },
                },
            },
            "stream": {"type": "boolean"},
            "frame_time_ranges": {"type": "array", "items": _RANGE},
            "frame_time_range": _RANGE,
            "system_prompt_key": _STRING,
            "persona": _STRING,
        },
        ("messages",),
    ),
    "parameters": [
        *_SESSION_HEADERS,
        *_headers(
            "x-frame-time-range",
            "x-streaming-time-range",
            "x-system-prompt-key",
            "x-query-new",
            "idempotency-key",
        ),
    ],
}
RESET: dict[str, Any] = {**_body(_SESSION, needed=False), "parameters": _SESSION_HEADERS}
PERSONA: dict[str, Any] = {
    **_body({**_SESSION, "persona": _STRING}, ("persona",)),
    "parameters": _SESSION_HEADERS,
}
SOURCE: dict[str, Any] = _body({"source": {"type": "string", "minLength": 1}}, ("source",))
QUERY: dict[str, Any] = {
    **_body({"text": {"type": "string", "minLength": 1}}, ("text",)),
    "parameters": _headers("x-query-new"),
}

ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A chat completion with `interaction`; with `stream`, server-sent chunks of one.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
}

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Facts as server-sent events.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A tar; without `end.json` in it, it was cut short.",
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
    }
}

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "code", "message"],
            "properties": {
                "type": _STRING,
                "code": _STRING,
                "message": _STRING,
                "param": {"type": ["string", "null"]},
                "retryable": {"type": "boolean"},
            },
        }
    },
}


def _refused(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _ERROR}}}


ERRORS: dict[int | str, dict[str, Any]] = {
    400: _refused("The request must be changed."),
    401: _refused("No valid API key."),
    403: _refused("Not allowed by the settings of this server."),
    404: _refused("No such session or model."),
    405: _refused("Another method is needed."),
    408: _refused("The request body came too slowly."),
    409: _refused(
        "The Idempotency-Key was used otherwise, a socket is attached, or the session ended meanwhile."
    ),
    413: _refused("The request, a frame or the query is too large."),
    429: _refused("No capacity is free; see Retry-After."),
    500: _refused("A fault of this server."),
    502: _refused("The engine answered with an error."),
    503: _refused("The engine can't be reached or gave no answer in time; see Retry-After."),
}

SessionId = Annotated[str, Path(json_schema_extra=SESSION_ID)]
"""The server's id of a session or the caller's own name for it, in a path."""
