"""Real time and real ids. Everything else takes them injected (``Clock`` and ``Ids`` of the session room)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque

_AT_A_TIME = 512
_random: deque[str] = deque()
"""Random halves of ids to come: the system is asked for many at once. Each is taken by one thread alone."""


class SystemClock:
    """``now``: monotonic seconds; ``wall_ms``: Unix milliseconds."""

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def system_ids(prefix: str) -> str:
    """``prefix``, a separator unless it ends with one, and 32 unguessable hex digits."""
    separator = "" if prefix.endswith(("-", "_")) else "_"
    return f"{prefix}{separator}{_hex()}"


def _hex() -> str:
    try:
        return _random.popleft()
    except IndexError:
        many = secrets.token_hex(16 * _AT_A_TIME)
        _random.extend(many[at : at + 32] for at in range(32, len(many), 32))
        return many[:32]


def system_tokens() -> str:
    """A secret of 32 random bytes, URL-safe."""
    return secrets.token_urlsafe(32)
