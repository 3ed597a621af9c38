"""Prometheus metrics. Ticks are counted as the backends report them; other figures are read when scraped."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)

from orchestrator.api.readings import Readings, ReadingsCollector
from orchestrator.api.shown import OTHERS, Shown
from orchestrator.runtime.vocabulary import BackendOutput, Delegation, Failed, Notice, TickDone

TENANTS = 64
"""With series of their own: those that ask most. All others share one."""
ENGINES = 64
"""With series of their own, likewise."""
CODES = 64
"""Different codes that an engine or a session may tell; any more are one."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_WRITES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
_RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0)
ENGINE_STATES = ("starting", "ready", "slow", "wedged", "dead", "draining")

_CODE = re.compile(r"[\w.:/-]{0,64}", re.ASCII)

_TEXTS = {
    "summary_landed": ("summary", "landed"),
    "summary_failed": ("summary", "failed"),
    "rollup_landed": ("long_term_block", "landed"),
    "rollup_failed": ("long_term_block", "failed"),
}

# A second series beside each one, for when it began, is of use to nobody who scrapes regularly.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """One registry of its own, so that several applications in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._looks: list[Callable[[], Awaitable[None]]] = []
        self._looking: asyncio.Task[None] | None = None
        self._by_tenant = _ByTenant()
        self._engines = Shown(ENGINES, self._forget_engine)
        self._code = _Codes()

        def counter(name: str, text: str, labels: Iterable[str] = ()) -> Counter:
            return Counter(f"vigil_{name}", text, tuple(labels), registry=self._registry)

        def histogram(
            name: str, text: str, buckets: tuple[float, ...], labels: Iterable[str] = ()
        ) -> Histogram:
            return Histogram(f"vigil_{name}", text, tuple(labels), buckets=buckets, registry=self._registry)

        self._ticks = counter("ticks", "decisions, by action and by why it is silent", ("action", "reason"))
        self._failures = counter("tick_failures", "ticks that ended without an answer", ("code", "engine"))
        self._frames = counter("frames", "frames that rode an answered tick")
        self._dropped = counter("inputs_dropped", "appends and queries that no tick will show", ("reason",))
        self._latency = histogram(
            "tick_latency_seconds", "newest frame admitted to decision complete", _LATENCIES, ("engine",)
        )
        self._ttft = histogram(
            "tick_ttft_seconds", "engine request written to first token", _LATENCIES, ("engine",)
        )
        self._prompt = counter("prompt_tokens", "prompt tokens of all decisions")
        self._cached = counter("cached_tokens", "prompt tokens found in the engine's prefix cache")
        self._expected = counter(
            "expected_cached_tokens", "prompt tokens that the prefix audit promised from the cache"
        )
        self._completion = counter("completion_tokens", "generated tokens of all decisions")
        self._reuse = histogram("tick_reuse_ratio", "cached tokens by prompt tokens, per decision", _RATIOS)
        self._kept = counter("prefix_kept_tokens", "promised tokens that were found in the cache")
        self._shortfalls = counter(
            "prefix_shortfalls",
            "decisions with fewer cached tokens than promised, by where bytes differ",
            ("kind",),
        )
        self._texts = counter("summaries", "summaries and long-term blocks", ("kind", "outcome"))
        self._prewarms = counter("prewarms", "requests that keep a window warm", ("outcome",))
        self._not_shown = counter("frames_not_shown", "frames that no tick showed", ("reason",))
        self._oddities = counter("answer_oddities", "what was wrong with the form of answers", ("kind",))
        self._store = histogram("store_write_seconds", "facts and frames until they are durable", _WRITES)
        self._handovers = counter("window_handovers", "switches to a next window", ("reason",))
        self._deliveries = counter("webhook_events", "events for the webhook", ("outcome",))
        self._bytes = counter("engine_body_bytes", "bytes of request bodies sent to the engine for decisions")
        self._retries = counter("engine_retries", "requests sent again with all payloads")
        self._paths = counter(
            "engine_prompts", "decisions by how their prompt went: as token ids or as messages", ("path",)
        )
        self._fallbacks = counter(
            "engine_path_fallbacks", "prompts that could not go as token ids, by why", ("reason",)
        )
        self._delegations = counter("delegations", "background questions", ("status",))
        self._pairings = counter("pairings_opened", "engine sessions that sessions went on with", ("reason",))
        self._unpaired = counter(
            "pairings_lost", "engine sessions that ended before their session", ("reason",)
        )
        self._gaps = counter("units_in_doubt", "units that may not have reached the model", ("reason",))
        self._notices = counter("notices", "notices to clients", ("code",))
        self._faults = counter("failures", "what a session could not do for its client", ("code",))
        self.requests = counter("http_requests", "requests answered", ("route", "status"))

    def observe(self, output: BackendOutput, tenant: str) -> None:
        """Count one output of a backend of a tenant's session."""
        match output:
            case TickDone(record=record, error_code=error_code):
                self._tick(record, error_code)
                self._by_tenant.tick(tenant, record, error_code)
            case Delegation(status=status):
                self._delegations.labels(status).inc()
            case Notice(code=code):
                self._notices.labels(self._code("notice", code)).inc()
            case Failed(code=code):
                self._faults.labels(self._code("fault", code)).inc()

    def fact(self, kind: str, data: Mapping[str, Any]) -> None:
        """Count one fact of a session's log."""
        if kind in _TEXTS:
            self._texts.labels(*_TEXTS[kind]).inc()
        elif kind == "window_switched" and data["window"] > 0:
            self._handovers.labels(self._code("handover", data["reason"])).inc()
        elif kind == "prewarmed":
            self._prewarms.labels("done" if data["ok"] else "failed").inc()
        elif kind == "frame_dropped":
            self._not_shown.labels(self._code("not_shown", data["reason"])).inc()
        elif kind == "engine_session_opened":
            self._pairings.labels(self._code("paired", data["reason"])).inc()
        elif kind == "engine_session_ended":
            self._unpaired.labels(self._code("unpaired", data["reason"])).inc()
        elif kind == "media_gap":
            self._gaps.labels(self._code("gap", data["reason"])).inc(len(data["units"]))
        elif kind == "tick_answered":
            for oddity, count in ((data.get("metrics") or {}).get("oddities") or {}).items():
                self._oddities.labels(oddity).inc(count)

    def store_write(self, seconds: float) -> None:
        """A transaction of the store ended."""
        self._store.observe(seconds)

    def delivery(self, outcome: str) -> None:
        """Count an event that was delivered, refused, given up, or not taken this time."""
        self._deliveries.labels(outcome).inc()

    def add(self, read: Callable[[], Readings], look: Callable[[], Awaitable[None]]) -> None:
        """:param read: called at each scrape, after ``look``, which may take its time"""
        self._registry.register(ReadingsCollector(read))
        self._looks.append(look)

    async def scraped(self, *, tenants: bool = False) -> bytes:
        """``render``, after a look at what is read. Who asks meanwhile has the same look."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)
        return self.render(tenants=tenants)

    async def _look(self) -> None:
        for look in self._looks:
            await look()

    def render(self, *, tenants: bool = False) -> bytes:
        """:param tenants: the figures of each tenant too, by name"""
        text = generate_latest(self._registry)
        return text + generate_latest(self._by_tenant.registry) if tenants else text

    def _tick(self, record: Mapping[str, Any], error_code: str | None) -> None:
        if error_code is not None:
            engine = self._engines.count(str(record.get("engine") or ""))
            self._failures.labels(self._code("tick", error_code), engine).inc()
            return
        if record.get("status") == "dropped":
            self._dropped.labels(self._code("dropped", str(record.get("reason")))).inc(
                len(record.get("operations") or ())
            )
            return
        engine = self._engines.count(str(record.get("engine") or ""))
        action, reason = str(record.get("action") or "none"), str(record.get("reason") or "")
        self._ticks.labels(action, self._code("reason", reason)).inc()
        _add(self._frames, record, "frames")
        _add(self._bytes, record, "body_bytes")
        _add(self._retries, record, "retries")
        if path := record.get("path"):
            self._paths.labels(str(path)).inc()
        if why := record.get("path_fallback"):
            self._fallbacks.labels(self._code("fallback", str(why))).inc()
        for metric, column in ((self._latency, "latency_ms"), (self._ttft, "ttft_ms")):
            if (value := _number(record, column)) is not None:
                metric.labels(engine).observe(value / 1000)
        prompt, cached = _number(record, "prompt_tokens"), _number(record, "cached_tokens")
        _add(self._prompt, record, "prompt_tokens")
        _add(self._cached, record, "cached_tokens")
        _add(self._expected, record, "expected_cached_tokens")
        _add(self._completion, record, "completion_tokens")
        if prompt and cached is not None:
            self._reuse.observe(cached / prompt)
        if cached is not None and (promised := _number(record, "expected_cached_tokens")):
            self._kept.inc(min(cached, promised))
        if shortfall := record.get("shortfall"):
            self._shortfalls.labels(str(shortfall).partition("/")[0]).inc()

    def _forget_engine(self, engine: str) -> None:
        for metric in (self._failures, self._latency, self._ttft):
            metric.remove_by_labels({"engine": engine})


class _Codes:
    """Codes that others chose, so many of them, and none that looks like no code: it may be of any length, or
    such that no scrape could carry it."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def __call__(self, of: str, code: str) -> str:
        known = self._known.setdefault(of, set())
        if len(known) < CODES and _CODE.fullmatch(code):
            known.add(code)
        return code if code in known else OTHERS


class _ByTenant:
    """What each tenant's decisions cost."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tenants = Shown(TENANTS, self._forget)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vigil_tenant_{name}", text, ("tenant",), registry=self.registry)

        self._ticks = counter("ticks", "decisions of a tenant's sessions")
        self._failures = counter("tick_failures", "of a tenant's ticks, those that ended without an answer")
        self._latency = Summary(
            "vigil_tenant_tick_latency_seconds",
            "newest frame admitted to decision complete, of a tenant's decisions",
            ("tenant",),
            registry=self.registry,
        )
        self._tokens = {
            column: counter(column, f"{column.replace('_', ' ')} of a tenant's decisions")
            for column in ("prompt_tokens", "cached_tokens", "completion_tokens")
        }

    def tick(self, tenant: str, record: Mapping[str, Any], error_code: str | None) -> None:
        tenant = self._tenants.count(tenant)
        if error_code is not None:
            self._failures.labels(tenant).inc()
        elif record.get("status") != "dropped":
            self._ticks.labels(tenant).inc()
            if (latency_ms := _number(record, "latency_ms")) is not None:
                self._latency.labels(tenant).observe(latency_ms / 1000)
            for column, metric in self._tokens.items():
                if (value := _number(record, column)) is not None:
                    metric.labels(tenant).inc(value)

    def _forget(self, tenant: str) -> None:
        for metric in (self._ticks, self._failures, self._latency, *self._tokens.values()):
            metric.remove_by_labels({"tenant": tenant})


def _number(record: Mapping[str, Any], column: str) -> float | None:
    value = record.get(column)
    return float(value) if isinstance(value, int | float) else None


def _add(counter: Counter, record: Mapping[str, Any], column: str) -> None:
    value = record.get(column)
    number = len(value) if isinstance(value, list | tuple) else value
    if isinstance(number, int | float) and number > 0:
        counter.inc(number)
