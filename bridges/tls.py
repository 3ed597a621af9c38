"""The certificates that outgoing connections trust."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """Read once: it keeps the event loop as long as many ticks do, and an engine's clients are made while
    sessions run."""
    return httpx.create_ssl_context(trust_env=False)
