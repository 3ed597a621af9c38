"""A small synchronous client for launching and checking an engine; the service's own is in ``bridges``."""

from __future__ import annotations

import base64
import io
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from PIL import Image

Message = Mapping[str, Any]
_PLAIN = {"accept-encoding": "identity"}
_MOST = 16 * 2**20
"""Bytes of an answer."""


class Unreachable(Exception):
    """No connection, or it broke before an answer."""


class Misunderstood(Unreachable):
    """What answers is no engine: its answers have a shape that none has."""


class NoAnswer(Exception):
    """Connected, but no answer within the deadline."""


@contextmanager
def understood() -> Iterator[None]:
    """What is read off an engine's answers within. Raises :class:`Misunderstood`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as odd:
        raise Misunderstood(f"it answers in a shape that no engine has ({odd!r})") from odd


@dataclass(frozen=True, slots=True)
class Reply:
    """:param json: the body where it is a JSON object, else empty; :param seconds: until it was complete"""

    status: int
    json: dict[str, Any]
    text: str
    seconds: float

    @property
    def error(self) -> str:
        """The engine's own words on a failure."""
        error = self.json.get("error", self.json)
        message = error.get("message") if isinstance(error, dict) else error
        return str(message or self.text)[:500]

    @property
    def answer(self) -> str:
        choices = self.json.get("choices") or [{}]
        return str(choices[0].get("message", {}).get("content") or "")

    @property
    def prompt_tokens(self) -> int:
        return int((self.json.get("usage") or {}).get("prompt_tokens") or 0)

    @property
    def cached_tokens(self) -> int | None:
        details = (self.json.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        return None if cached is None else int(cached)


class EngineHttp:
    """Requests to one engine. Every one has a deadline in seconds; nothing is retried.

    :param base_url: with or without a trailing ``/v1``
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, deadline_s: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        # A router in front of several engines then sends all that one client asks to the same one.
        headers = {"x-session-id": f"check-{uuid.uuid4().hex}"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._deadline_s = deadline_s
        # Stock servers close an idle connection after 5 s; leave first, never to write into a closing one.
        limits = httpx.Limits(keepalive_expiry=4.0)
        self._http = httpx.Client(base_url=self.base_url, headers=headers, limits=limits, trust_env=False)

    def __enter__(self) -> EngineHttp:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
    ) -> Reply:
        """Raises :class:`Unreachable` or :class:`NoAnswer`; any status is a reply."""
        began = time.monotonic()
        until = began + (deadline_s or self._deadline_s)
        try:
            with self._http.stream(
                method, path, json=body, headers=_PLAIN, timeout=deadline_s or self._deadline_s
            ) as response:
                raw = _whole(response, path, until)
        except httpx.TimeoutException as error:
            raise NoAnswer(f"{path}: {type(error).__name__}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(str(error) or type(error).__name__) from None
        text = raw.decode("utf-8", "replace")
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = {}
        return Reply(
            response.status_code,
            parsed if isinstance(parsed, dict) else {},
            text,
            time.monotonic() - began,
        )

    def models(self, *, deadline_s: float | None = None) -> list[dict[str, Any]]:
        data = self.send("GET", "/v1/models", deadline_s=deadline_s).json.get("data")
        return [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []

    def chat(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int = 1,
        deadline_s: float | None = None,
        **params: Any,
    ) -> Reply:
        body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, **params}
        return self.send("POST", "/v1/chat/completions", body, deadline_s=deadline_s)

    def tokenize(self, model: str, **body: Any) -> list[int] | None:
        """Token ids of ``prompt=...`` or ``messages=...``; None where the engine can't tell."""
        reply = self.send("POST", "/tokenize", {"model": model, **body})
        tokens = reply.json.get("tokens")
        return [int(t) for t in tokens] if reply.status == 200 and isinstance(tokens, list) else None

    def metrics(self, *, deadline_s: float | None = None) -> str:
        """The text of ``/metrics``; empty where there is none."""
        reply = self.send("GET", "/metrics", deadline_s=deadline_s)
        return reply.text if reply.status == 200 else ""


def _whole(response: httpx.Response, path: str, until: float) -> bytes:
    """Whoever is there may send slowly, and without end."""
    parts, size = list[bytes](), 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > _MOST:
            raise Unreachable(f"{path}: an answer of more than {_MOST} bytes")
        if time.monotonic() > until:
            raise NoAnswer(f"{path}: it did not end in time")
    return b"".join(parts)


def metric_total(metrics: str, name: str) -> float:
    """Sum of a counter over its labels."""
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? ([0-9.e+-]+)$", metrics, re.M))


def picture(number: int, side: int) -> bytes:
    """A plain square JPEG; another ``number`` is another image."""
    colour = (number * 37 % 256, number * 101 % 256, number // 7 % 256)
    data = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(data, "JPEG")
    return data.getvalue()


def image_part(number: int, side: int, uuid: str | None = None) -> dict[str, Any]:
    """``picture`` as a part of a message."""
    url = "data:image/jpeg;base64," + base64.b64encode(picture(number, side)).decode()
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    return part if uuid is None else {**part, "uuid": uuid}
