"""Prometheus metrics. Ticks are counted as the backends report them; gauges are read when scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isinf
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.runtime.vocabulary import BackendOutput, Delegation, Failed, Notice, TickDone

TENANTS = 64
"""With series of their own: the first ones to come. Those after them share one."""
OTHERS = "other"

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_WRITES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
_RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0)
ENGINE_STATES = ("starting", "ready", "slow", "wedged", "dead", "draining")

_TEXTS = {
    "summary_landed": ("summary", "landed"),
    "summary_failed": ("summary", "failed"),
    "rollup_landed": ("long_term_block", "landed"),
    "rollup_failed": ("long_term_block", "failed"),
}


class ByEngine(dict[str, float]):
    """A gauge with one value for each engine, whose label says ``engine``."""


class Durations(Protocol):
    """How long something took: upper ends of buckets with how many took no longer, and their sum."""

    @property
    def total_s(self) -> float: ...

    def buckets(self) -> list[tuple[float, int]]: ...


Gauges = Callable[[], Mapping[str, float | Mapping[str, float] | Durations]]
"""Gauges by name without prefix; a mapping value has one entry per value of the label ``of``. Durations are
histograms."""


class Metrics:
    """One registry of its own, so that several applications in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._by_tenant = _ByTenant()

        def counter(name: str, text: str, labels: Iterable[str] = ()) -> Counter:
            return Counter(f"vigil_{name}", text, tuple(labels), registry=self._registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"vigil_{name}", text, buckets=buckets, registry=self._registry)

        self._ticks = counter("ticks", "decisions, by action and by why it is silent", ("action", "reason"))
        self._failures = counter("tick_failures", "ticks that ended without an answer", ("code",))
        self._frames = counter("frames", "frames that rode an answered tick")
        self._dropped = counter("inputs_dropped", "appends and queries that no tick will show", ("reason",))
        self._latency = histogram(
            "tick_latency_seconds", "newest frame admitted to decision complete", _LATENCIES
        )
        self._ttft = histogram("tick_ttft_seconds", "engine request written to first token", _LATENCIES)
        self._prompt = counter("prompt_tokens", "prompt tokens of all decisions")
        self._cached = counter("cached_tokens", "of these, found in the engine's prefix cache")
        self._expected = counter("expected_cached_tokens", "of these, promised by the prefix audit")
        self._completion = counter("completion_tokens", "generated tokens of all decisions")
        self._reuse = histogram("tick_reuse_ratio", "cached tokens by prompt tokens, per decision", _RATIOS)
        self._kept = counter("prefix_kept_tokens", "of the promised tokens, found in the cache")
        self._shortfalls = counter(
            "prefix_shortfalls",
            "decisions with fewer cached tokens than promised, by where bytes differ",
            ("kind",),
        )
        self._texts = counter("summaries", "summaries and long-term blocks", ("of", "outcome"))
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
                self._notices.labels(code).inc()
            case Failed(code=code):
                self._faults.labels(code).inc()

    def fact(self, kind: str, data: Mapping[str, Any]) -> None:
        """Count one fact of a session's log."""
        if kind in _TEXTS:
            self._texts.labels(*_TEXTS[kind]).inc()
        elif kind == "window_switched" and data["window"] > 0:
            self._handovers.labels(data["reason"]).inc()
        elif kind == "prewarmed":
            self._prewarms.labels("done" if data["ok"] else "failed").inc()
        elif kind == "frame_dropped":
            self._not_shown.labels(data["reason"]).inc()
        elif kind == "engine_session_opened":
            self._pairings.labels(data["reason"]).inc()
        elif kind == "engine_session_ended":
            self._unpaired.labels(data["reason"]).inc()
        elif kind == "media_gap":
            self._gaps.labels(data["reason"]).inc(len(data["units"]))
        elif kind == "tick_answered":
            for oddity, count in ((data.get("metrics") or {}).get("oddities") or {}).items():
                self._oddities.labels(oddity).inc(count)

    def store_write(self, seconds: float) -> None:
        """A transaction of the store ended."""
        self._store.observe(seconds)

    def delivery(self, outcome: str) -> None:
        """Count an event that was delivered, refused, given up, or not taken this time."""
        self._deliveries.labels(outcome).inc()

    def add_gauges(self, gauges: Gauges) -> None:
        self._registry.register(_Gauges(gauges))

    def render(self, *, tenants: bool = False) -> bytes:
        """:param tenants: the figures of each tenant too, by name"""
        text = generate_latest(self._registry)
        return text + generate_latest(self._by_tenant.registry) if tenants else text

    def _tick(self, record: Mapping[str, Any], error_code: str | None) -> None:
        if error_code is not None:
            self._failures.labels(error_code).inc()
            return
        if record.get("status") == "dropped":
            self._dropped.labels(str(record.get("reason"))).inc(len(record.get("operations") or ()))
            return
        self._ticks.labels(str(record.get("action")), str(record.get("reason") or "")).inc()
        _add(self._frames, record, "frames")
        _add(self._bytes, record, "body_bytes")
        _add(self._retries, record, "retries")
        if path := record.get("path"):
            self._paths.labels(str(path)).inc()
        if reason := record.get("path_fallback"):
            self._fallbacks.labels(str(reason)).inc()
        for metric, column in ((self._latency, "latency_ms"), (self._ttft, "ttft_ms")):
            if (value := _number(record, column)) is not None:
                metric.observe(value / 1000)
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


class _ByTenant:
    """What each tenant's decisions cost."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: set[str] = set()

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vigil_tenant_{name}", text, ("tenant",), registry=self.registry)

        self._ticks = counter("ticks", "decisions of a tenant's sessions")
        self._failures = counter("tick_failures", "of a tenant's ticks, those that ended without an answer")
        self._tokens = {
            column: counter(column, f"{column.replace('_', ' ')} of a tenant's decisions")
            for column in ("prompt_tokens", "cached_tokens", "completion_tokens")
        }

    def tick(self, tenant: str, record: Mapping[str, Any], error_code: str | None) -> None:
        if tenant not in self._known:
            if len(self._known) < TENANTS:
                self._known.add(tenant)
            else:
                tenant = OTHERS
        if error_code is not None:
            self._failures.labels(tenant).inc()
        elif record.get("status") != "dropped":
            self._ticks.labels(tenant).inc()
            for column, metric in self._tokens.items():
                if (value := _number(record, column)) is not None:
                    metric.labels(tenant).inc(value)


class _Gauges(Collector):
    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for name, value in self._gauges().items():
            full, text = f"vigil_{name}", name.replace("_", " ")
            if isinstance(value, Mapping):
                label = "engine" if isinstance(value, ByEngine) else "of"
                family = GaugeMetricFamily(full, text, labels=(label,))
                for of, number in value.items():
                    family.add_metric((of,), number)
                yield family
            elif isinstance(value, int | float):
                yield GaugeMetricFamily(full, text, value=value)
            else:
                buckets = [("+Inf" if isinf(end) else str(end), count) for end, count in value.buckets()]
                yield HistogramMetricFamily(full, text, buckets=buckets, sum_value=value.total_s)


def _number(record: Mapping[str, Any], column: str) -> float | None:
    value = record.get(column)
    return float(value) if isinstance(value, int | float) else None


def _add(counter: Counter, record: Mapping[str, Any], column: str) -> None:
    value = record.get(column)
    number = len(value) if isinstance(value, list | tuple) else value
    if isinstance(number, int | float) and number > 0:
        counter.inc(number)
