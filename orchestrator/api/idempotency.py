"""``Idempotency-Key``: the same key gives the same answer, and its input is taken once."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.runtime.vocabulary import Clock
from orchestrator.wire.errors import Conflict, InvalidRequest, ResourceExhausted

T = TypeVar("T")
_MAX_KEY = 255


@dataclass(slots=True)
class _Entry:
    fingerprint: bytes
    task: asyncio.Task[Any]
    expires: float

    @property
    def failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)


class Idempotency:
    """Answers by (tenant, key), newest kept. After a failure the same key may try again.

    Work goes on when the client that asked for it is gone, so that its retry finds the answer.

    :param keys: answers kept per tenant
    :param ttl_s: seconds an answer is kept
    """

    def __init__(self, keys: int, ttl_s: float, clock: Clock) -> None:
        self._keys = keys
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: dict[str, OrderedDict[str, _Entry]] = {}

    async def run(
        self, tenant: str, key: str, request: bytes, work: Callable[[bool], Coroutine[Any, Any, T]]
    ) -> T:
        """The result of ``work``, or of the earlier request with this key.

        :param request: the raw request; the key of an answered one is refused for another
        :param work: told True when this very request failed before: its input may have been taken
        """
        if len(key) > _MAX_KEY:
            raise InvalidRequest(
                f"an Idempotency-Key has at most {_MAX_KEY} characters", param="idempotency-key"
            )
        entries = self._entries.setdefault(tenant, OrderedDict())
        self._expire(entries)
        fingerprint = hashlib.sha256(request).digest()
        entry = entries.get(key)
        if entry is None or entry.failed:
            retry = entry is not None and entry.fingerprint == fingerprint
            entries.pop(key, None)
            self._make_room(entries)
            task = asyncio.create_task(work(retry))
            entry = entries[key] = _Entry(fingerprint, task, self._clock.now() + self._ttl_s)
        elif entry.fingerprint != fingerprint:
            raise Conflict(
                "this Idempotency-Key was used for another request; use a new one",
                code="idempotency_key_reused",
                param="idempotency-key",
            )
        result: T = await asyncio.shield(entry.task)
        return result

    def statistics(self) -> dict[str, int]:
        return {"keys": sum(map(len, self._entries.values())), "tenants": len(self._entries)}

    def _expire(self, entries: OrderedDict[str, _Entry]) -> None:
        now = self._clock.now()
        for key in [k for k, entry in entries.items() if entry.expires <= now and entry.task.done()]:
            del entries[key]

    def _make_room(self, entries: OrderedDict[str, _Entry]) -> None:
        while len(entries) >= self._keys:
            oldest = next((k for k, entry in entries.items() if entry.task.done()), None)
            if oldest is None:
                raise ResourceExhausted(
                    f"{self._keys} keyed requests are in work; wait for some of them", retry_after_s=1.0
                )
            del entries[oldest]


def input_of(tenant: str, key: str) -> str:
    """The id of the input that belongs to a key, so that a retry after a failure brings no second frame."""
    return "idem_" + hashlib.sha256(f"{tenant}\x00{key}".encode()).hexdigest()[:32]
