"""What is known of sessions besides their running: looked up, followed as events, delivered to a webhook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bridges.webhook import Webhook
from memory.store.base import Entry
from memory.store.store import Store
from memory.tally import Tally
from orchestrator.api.metrics import Metrics
from orchestrator.api.public_facts import public_fact, selects
from orchestrator.api.readings import Reading, Readings, named
from orchestrator.deliveries import Deliveries
from orchestrator.directory import Directory, Live, Running
from orchestrator.keeping import Kept
from orchestrator.runtime.registry import Registry
from orchestrator.session.backend import Clock
from orchestrator.setting_groups import Webhook as WebhookSettings
from orchestrator.tail import Bells

_WEBHOOK = {
    "readers": ("webhook_readers", "sessions whose events the webhook follows"),
    "waiting": (
        "webhook_waiting_sessions",
        "sessions with an event that the webhook's receiver has not taken",
    ),
    "late_s": ("webhook_late_seconds", "age of the oldest event that the receiver has not taken"),
}
_WRITER = {
    "transactions": ("store_transactions_total", "transactions of the store"),
    "facts": ("store_facts_total", "facts written"),
    "frames": ("store_frames_total", "frames written"),
    "failed": ("store_failures_total", "shares of sessions that could not be written"),
    "retries": ("store_retries_total", "transactions tried again"),
    "largest": ("store_largest_transaction_facts", "facts of the largest transaction so far"),
    "waiting": ("store_waiting", "sessions with facts or frames that wait to be written"),
}


class Records:
    """Of the sessions of one store.

    :param live: the live side of a session by its id
    :param released: returns when nothing writes to a session any more
    """

    def __init__(
        self,
        store: Store,
        settings: WebhookSettings,
        registry: Registry,
        metrics: Metrics,
        clock: Clock,
        live: Callable[[str], Live | None],
        released: Callable[[str], Awaitable[None]],
    ) -> None:
        self._metrics = metrics
        self._readers = Bells()
        running = Running(registry, live, released, self._forget)
        self.directory = Directory(store, self._readers, running)
        self._webhook: Webhook | None = None
        self._deliveries: Deliveries | None = None
        if settings.url and settings.secret:
            self._webhook = Webhook(
                settings.url,
                settings.secret.get_secret_value(),
                clock.wall_ms,
                timeout_s=settings.timeout_s,
                max_connections=settings.max_in_flight,
            )
            self._deliveries = Deliveries(
                self._webhook, store, _chosen(settings), clock, settings.keep_s, metrics.delivery
            )

    async def start(self) -> None:
        """Go on with deliveries that an earlier process left."""
        if self._deliveries is not None:
            await self._deliveries.start()

    async def opening(self, session_id: str, kept: Kept) -> None:
        """A session opens: who follows it hears of every fact from now on."""
        if self._deliveries is not None:
            await self._deliveries.session(session_id)

        def on_entry(entry: Entry) -> None:
            self.news(session_id, entry.seq)

        kept.log.subscribe(on_entry)

    def news(self, session_id: str, seq: int = 0) -> None:
        """A fact was appended, or the session is over."""
        self._readers.ring(session_id, seq)
        if self._deliveries is not None:
            self._deliveries.news(session_id, seq)

    def stop_readers(self) -> None:
        """The service ends: connections that wait for events must not hold it up."""
        self._readers.stop()

    async def aclose(self) -> None:
        if self._deliveries is not None:
            await self._deliveries.aclose()
        if self._webhook is not None:
            await self._webhook.aclose()

    def readings(self) -> Readings:
        return {} if self._deliveries is None else named(self._deliveries.statistics(), _WEBHOOK)

    async def _forget(self, session_id: str) -> None:
        if self._deliveries is not None:
            await self._deliveries.forget(session_id)


def store_readings(statistics: Mapping[str, Any]) -> Readings:
    """Of a store's ``statistics()``."""
    opened = Reading("sessions that this process writes to", float(statistics["open"]))
    return {**named(statistics["writer"], _WRITER), "store_open_sessions": opened}


def counted(kept: Kept, metrics: Metrics) -> Tally:
    """The counts of a session, from its past and with every fact to come; those count in the metrics too."""
    tally = Tally()
    for entry in kept.past:
        tally.apply(entry.kind, entry.data)

    def on_entry(entry: Entry) -> None:
        tally.apply(entry.kind, entry.data)
        metrics.fact(entry.kind, entry.data)

    kept.log.subscribe(on_entry)
    return tally


def _chosen(settings: WebhookSettings) -> Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    kinds = frozenset(settings.kinds)
    return lambda kind, data: public_fact(kind, data) if selects(kinds, kind, data) else None
