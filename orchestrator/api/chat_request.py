"""What a chat-completions request asks for, in the dialects of the known interaction servers.

Only the newest user message is new input: its images are frames, its text is a query. Everything is
checked here; nothing here touches a session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.api.media_time import TimeRange, parse_range, take_tag
from orchestrator.wire.errors import InvalidRequest, TooLarge, Unsupported

SESSION_HEADERS = ("x-streaming-session", "x-session-id")
SESSION_FIELDS = ("session_id", "user")
TIME_HEADERS = ("x-frame-time-range", "x-streaming-time-range")
PERSONA_HEADER = "x-system-prompt-key"
PERSONA_FIELDS = ("system_prompt_key", "persona")

_ALIAS = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?")
_TRUE = {"1", "true", "yes"}


@dataclass(frozen=True, slots=True)
class RequestedFrame:
    """An image as it was sent. ``media_time_ms`` is ``None`` where the client gave no time."""

    url: str
    media_time_ms: int | None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """:param alias: the client's name for its session; ``None``: none was given
    :param query_new: ask even if the text equals the standing query
    :param body: the whole request, for text that is passed on to the engine
    """

    alias: str | None
    frames: tuple[RequestedFrame, ...]
    text: str | None
    persona_key: str | None
    model: str | None
    query_new: bool
    stream: bool
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestBounds:
    frames: int
    query_chars: int
    period_s: float


def parse_chat(headers: Mapping[str, str], body: Mapping[str, Any], bounds: RequestBounds) -> ChatRequest:
    """:raises InvalidRequest: with the path of the offending field"""
    message, where = _newest_user_message(body)
    texts, images = _content(message.get("content"), f"{where}.content")
    if len(images) > bounds.frames:
        raise TooLarge(
            f"{len(images)} frames in one request; at most {bounds.frames} are taken",
            code="too_many_frames",
            param=f"{where}.content",
        )
    text = "\n".join(t for t in texts if t).strip() or None
    if text is not None and len(text) > bounds.query_chars:
        raise TooLarge(
            f"the query has {len(text)} characters; at most {bounds.query_chars} are taken",
            code="query_too_long",
            param=f"{where}.content",
        )
    if text is None and not images:
        raise InvalidRequest(
            "the newest user message has neither text nor image", code="empty_input", param=where
        )
    return ChatRequest(
        alias=session_alias(headers, body),
        frames=_timed(images, headers, body, bounds.period_s),
        text=text,
        persona_key=persona_key(headers, body),
        model=_optional_string(body, "model"),
        query_new=asks_anew(headers),
        stream=_flag(body, "stream"),
        body=body,
    )


def asks_anew(headers: Mapping[str, str]) -> bool:
    """The client wants its query asked even if the text equals the standing one."""
    return headers.get("x-query-new", "").strip().lower() in _TRUE


def session_alias(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The session id of a request: headers first, then the body's ``session_id`` and ``user``."""
    for name in SESSION_HEADERS:
        if headers.get(name, "").strip():
            return checked_alias(headers[name].strip(), name)
    for name in SESSION_FIELDS:
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} must be a string", param=name)
        return checked_alias(value.strip(), name)
    return None


def checked_alias(value: str, param: str) -> str:
    if not _ALIAS.fullmatch(value):
        raise InvalidRequest(
            "a session id has 1 to 128 printable ASCII characters", code="invalid_session_id", param=param
        )
    return value


def persona_key(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    if headers.get(PERSONA_HEADER, "").strip():
        return headers[PERSONA_HEADER].strip()
    for name in PERSONA_FIELDS:
        if (value := _optional_string(body, name)) is not None:
            return value
    return None


def _newest_user_message(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a list with at least one message", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidRequest("each message is an object with a role", param=f"messages.{index}")
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "user":
            return messages[index], f"messages.{index}"
    raise InvalidRequest("there is no message with role user", code="empty_input", param="messages")


@dataclass(slots=True)
class _Image:
    url: str
    tag: TimeRange | None


def _content(content: Any, where: str) -> tuple[list[str], list[_Image]]:
    """Texts without their time tags, and images with the tag that stands before them (or else any)."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [_clean(take_tag(content)[1])], []
    if not isinstance(content, list):
        raise InvalidRequest("content must be a string or a list of parts", param=where)
    texts: list[str] = []
    images: list[_Image] = []
    tag: TimeRange | None = None
    first_tag: TimeRange | None = None
    for index, part in enumerate(content):
        path = f"{where}.{index}"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            text = part.get("text")
            if not isinstance(text, str):
                raise InvalidRequest("text must be a string", param=f"{path}.text")
            found, rest = take_tag(text)
            tag = found or tag
            first_tag = first_tag or found
            texts.append(_clean(rest))
        elif kind == "image_url":
            images.append(_Image(_image_url(part.get("image_url"), f"{path}.image_url"), tag))
        elif isinstance(kind, str):
            raise Unsupported(
                f"content of type {kind!r} is not taken; send text and image_url",
                code="unsupported_content",
                param=f"{path}.type",
            )
        else:
            raise InvalidRequest("each part is an object with a type", param=path)
    for image in images:
        image.tag = image.tag or first_tag
    return texts, images


def _image_url(value: Any, param: str) -> str:
    if not isinstance(value, dict) or not isinstance(value.get("url"), str) or not value["url"]:
        raise InvalidRequest(
            'image_url must be an object: {"url": "data:image/jpeg;base64,..."}', param=param
        )
    url: str = value["url"]
    return url


def _timed(
    images: list[_Image], headers: Mapping[str, str], body: Mapping[str, Any], period_s: float
) -> tuple[RequestedFrame, ...]:
    """Sources of a frame's time, best first: its own range, the request's, the header's, the tag."""
    count = len(images)
    own: list[TimeRange | None] = [None] * count
    ranges = body.get("frame_time_ranges")
    if ranges is not None:
        if not isinstance(ranges, list):
            raise InvalidRequest("frame_time_ranges must be a list", param="frame_time_ranges")
        # A client that sends its history may list older frames too: ours are the last ones.
        newest = ranges[-count:] if count else []
        for index, value in enumerate(newest):
            if value is not None:
                own[index] = parse_range(value, f"frame_time_ranges.{len(ranges) - len(newest) + index}")
    shared = _shared_range(headers, body)
    times: list[int | None] = [None] * count
    start = 0
    while start < count:
        range_ = own[start] or shared or images[start].tag
        end = start + 1
        while (
            end < count and own[start] is None and own[end] is None and (shared or images[end].tag) is range_
        ):
            end += 1
        if range_ is not None:
            times[start:end] = range_.spread(end - start, period_s)
        start = end
    return tuple(RequestedFrame(image.url, time) for image, time in zip(images, times, strict=True))


def _shared_range(headers: Mapping[str, str], body: Mapping[str, Any]) -> TimeRange | None:
    if body.get("frame_time_range") is not None:
        return parse_range(body["frame_time_range"], "frame_time_range")
    for name in TIME_HEADERS:
        if headers.get(name, "").strip():
            return parse_range(headers[name], name)
    return None


def _clean(text: str) -> str:
    return text.replace("\x00", "").strip()


def _optional_string(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string", param=name)
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", param=name)
    return bool(value)
