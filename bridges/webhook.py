"""One receiver of events over HTTP, signed as the Standard Webhooks specification says.

https://github.com/standard-webhooks/standard-webhooks: the headers ``webhook-id``, ``webhook-timestamp`` and
``webhook-signature``; the signature is ``v1,`` and the base64 of the HMAC-SHA256 of ``id.timestamp.body``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from bridges.tls import trusted

_SECRET_PREFIX = "whsec_"
_RETRIED = frozenset({408, 409, 425, 429})
_CONNECT_S = 5.0
_LONGEST_WAIT_S = 3600.0


class WebhookError(Exception):
    """An event was not taken.

    :param code: ``webhook_unreachable``, ``webhook_timeout``, ``webhook_failed`` (it may take the event
        later) or ``webhook_refused`` (it never will)
    :param retry_after_s: when the receiver wants to be asked again, if it said so
    """

    def __init__(self, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def final(self) -> bool:
        return self.code == "webhook_refused"


class Webhook:
    """
    :param secret: ``whsec_`` and base64, or any other text, whose bytes are then the key
    :param timeout_s: of one delivery, until the receiver's answer
    :param wall_ms: Unix time in milliseconds
    :param max_connections: deliveries at a time; others wait
    """

    def __init__(
        self,
        url: str,
        secret: str,
        wall_ms: Callable[[], int],
        *,
        timeout_s: float = 10.0,
        max_connections: int = 8,
    ) -> None:
        self._url = url
        self._key = signing_key(secret)
        self._wall_ms = wall_ms
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(max_connections)
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            limits=httpx.Limits(max_connections=max_connections),
            follow_redirects=False,
            trust_env=False,
            verify=trusted(),
        )

    async def post(self, event_id: str, body: bytes) -> None:
        """Deliver one event. Returns when the receiver has taken it; raises ``WebhookError``."""
        # Waiting for a free place is no fault of the receiver, so its time starts afterwards.
        async with self._places:
            status, hint = await self._sent(event_id, body)
        if 200 <= status < 300:
            return
        if status >= 500 or status in _RETRIED:
            raise WebhookError("webhook_failed", f"status {status}", self._retry_after_s(hint))
        raise WebhookError("webhook_refused", f"status {status}")

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _sent(self, event_id: str, body: bytes) -> tuple[int, str | None]:
        timestamp = str(self._wall_ms() // 1000)
        headers = {
            "content-type": "application/json",
            "user-agent": "vigil",
            "webhook-id": event_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": sign(self._key, event_id, timestamp, body),
        }
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                return response.status_code, response.headers.get("retry-after")
        except (TimeoutError, httpx.TimeoutException) as late:
            raise WebhookError("webhook_timeout", f"no answer within {self._timeout_s:g} s") from late
        except (httpx.HTTPError, OSError) as broken:
            raise WebhookError("webhook_unreachable", str(broken) or type(broken).__name__) from broken

    def _retry_after_s(self, hint: str | None) -> float | None:
        if not hint:
            return None
        try:
            seconds = float(hint)
        except ValueError:
            try:
                due = parsedate_to_datetime(hint)
            except ValueError:
                return None
            now = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
            seconds = (due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() - now.timestamp()
        return min(_LONGEST_WAIT_S, seconds) if seconds > 0 else None


def signing_key(secret: str) -> bytes:
    """:raises ValueError: ``whsec_`` is followed by no base64"""
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what follows {_SECRET_PREFIX} is no base64") from None


def sign(key: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    signed = hmac.new(key, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()
