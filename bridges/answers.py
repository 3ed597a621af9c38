"""Answers of other servers that are read whole: whoever is there may send slowly, and without end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx

PLAIN = {"accept-encoding": "identity"}
"""To be asked with: what is packed may be a thousand times as long."""


class TooLong(httpx.TransportError):
    """More came than any sensible answer has."""


async def answered(
    http: httpx.AsyncClient, method: str, url: str, *, within_s: float, most: int, **more: Any
) -> tuple[int, bytes]:
    """One request: status and body.

    :param within_s: for all of it; ``most``: bytes of its body
    :raises httpx.HTTPError: no answer, or none in time, or a longer one
    """
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(within_s), http.stream(method, url, headers=PLAIN, **more) as response:
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                _check(size, most)
    except TimeoutError:
        raise httpx.ReadTimeout(f"no whole answer within {within_s:g} s") from None
    return response.status_code, b"".join(parts)


def answered_now(
    http: httpx.Client, method: str, url: str, *, within_s: float, most: int, **more: Any
) -> tuple[int, bytes]:
    """``answered`` by a client that blocks."""
    until = time.monotonic() + within_s
    parts, size = list[bytes](), 0
    with http.stream(method, url, headers=PLAIN, **more) as response:
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            _check(size, most)
            if time.monotonic() > until:
                raise httpx.ReadTimeout(f"no whole answer within {within_s:g} s")
    return response.status_code, b"".join(parts)


def _check(size: int, most: int) -> None:
    if size > most:
        raise TooLong(f"the answer is longer than {most} bytes")
