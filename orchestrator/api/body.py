"""Reading a request body: bounded while it arrives, in a bounded time, and always a JSON object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from orchestrator.api.errors import RequestTimeout
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, TooLarge


class BodyBudget:
    """Bytes of all request bodies that are held at a time.

    :param limit: largest sum, in bytes
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    def statistics(self) -> dict[str, int]:
        return {"held": self._held, "limit": self._limit}

    def take(self, size: int) -> None:
        if self._held + size > self._limit:
            raise ResourceExhausted("too many request bodies are in work; try again", retry_after_s=1.0)
        self._held += size

    def give_back(self, size: int) -> None:
        self._held -= size


READ = "vigil.body"
"""Where a request's scope has the body that was read."""


class HeldBody:
    """A request body and its share of the budget; ``release`` when its request is over.

    :param charge: told of the bytes as they arrive; refuses them by raising
    """

    def __init__(self, budget: BodyBudget, charge: Callable[[int], None]) -> None:
        self.raw = b""
        self._budget = budget
        self._charge = charge
        self._size = 0

    async def read(self, request: Request, limit: int, timeout_s: float) -> bytes:
        """Read all of it. Nothing stays held when this raises."""
        try:
            self.raw = await _read(request, limit, timeout_s, self._grow)
        except BaseException:
            self.release()
            raise
        request.scope[READ] = self.raw
        return self.raw

    def release(self) -> None:
        """Idempotent."""
        self._budget.give_back(self._size)
        self._size = 0

    def _grow(self, size: int) -> None:
        self._charge(size)
        self._budget.take(size)
        self._size += size


async def whole_body(request: Request, limit: int, timeout_s: float) -> bytes:
    """The body of a request that is passed on: as it was read, or read now."""
    if (read := request.scope.get(READ)) is not None:
        return bytes(read)
    return await _read(request, limit, timeout_s, lambda _: None)


async def _read(request: Request, limit: int, timeout_s: float, grow: Callable[[int], None]) -> bytes:
    """Never holds more than ``limit`` bytes (and one network chunk)."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                grow(len(chunk))
                chunks.append(chunk)
    except TimeoutError:
        raise RequestTimeout(f"the request body did not arrive within {timeout_s:g} s") from None
    except ClientDisconnect:
        raise InvalidRequest(
            "the connection ended before the request body did", code="incomplete_body"
        ) from None
    return b"".join(chunks)


def parse_object(raw: bytes, *, empty_ok: bool = False) -> dict[str, Any]:
    """The body as a JSON object. ``empty_ok``: no body reads as ``{}``."""
    if empty_ok and not raw.strip():
        return {}
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request body is no valid JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise InvalidRequest(
            f"the request body must be a JSON object, not a {_kind(body)}", code="invalid_json"
        )
    return body


def _kind(value: Any) -> str:
    names = {list: "list", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names[type(value)]


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the request body is larger than {limit} bytes; send fewer or smaller frames", code="body_too_large"
    )
