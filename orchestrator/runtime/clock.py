"""Real time and real ids. Everything else takes them injected (``Clock`` and ``Ids`` of the session room)."""

from __future__ import annotations

import asyncio
import secrets
import time


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
    return f"{prefix}{separator}{secrets.token_hex(16)}"


def system_tokens() -> str:
    """A secret of 32 random bytes, URL-safe."""
    return secrets.token_urlsafe(32)
