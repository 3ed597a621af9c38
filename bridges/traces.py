"""``OtlpTraces``: spans sent to an OpenTelemetry collector over HTTP. Needs the extra ``otel``.

Spans are handed over when they are over already, a whole trace at a time. They wait in a bounded queue for a
thread that sends them; what finds no room there is left out and counted, a trace wholly or not at all. Nobody
ever waits.
What the standard variables say (``OTEL_EXPORTER_OTLP_*``, ``OTEL_BSP_*``, ``OTEL_TRACES_SAMPLER``,
``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_SERVICE_NAME``) holds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_EXPORT_BATCH_SIZE, OTEL_BSP_MAX_QUEUE_SIZE
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from bridges.spans import Span

_log = logging.getLogger(__name__)
# It complains of every attempt; that it fails is said once, and counted.
logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)

PATH = "/v1/traces"
QUEUE = 2048
"""Spans that wait at most, where ``OTEL_BSP_MAX_QUEUE_SIZE`` says nothing else."""
BATCH = 512
"""Spans that are sent together, likewise."""
CLOSE_S = 2.0
"""What is still waiting at the end is sent within this, or left out."""


class OtlpTraces:
    """
    :param endpoint: root of a collector; ``None``: ``OTEL_EXPORTER_OTLP_ENDPOINT``
    :param sample: share of traces that are sent; ``None``: ``OTEL_TRACES_SAMPLER``, else all
    :raises ValueError: a variable says what can't be
    """

    def __init__(self, endpoint: str | None, sample: float | None, version: str) -> None:
        self._ids = _Ids()
        address = None if endpoint is None else endpoint.rstrip("/").removesuffix(PATH) + PATH
        self._sent = _Counted(OTLPSpanExporter(endpoint=address))
        self._most = int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE) or QUEUE)
        self._given = 0
        self._dropped = 0
        self._provider = TracerProvider(
            sampler=None if sample is None else TraceIdRatioBased(sample),
            resource=_resource(version),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        batch = min(BATCH, self._most) if OTEL_BSP_MAX_EXPORT_BATCH_SIZE not in os.environ else None
        self._provider.add_span_processor(
            BatchSpanProcessor(self._sent, max_queue_size=self._most, max_export_batch_size=batch)
        )
        self._tracer = self._provider.get_tracer("vigil", version)

    def sampled(self, trace_id: int, name: str) -> bool:
        """Whether a trace whose first span has that name is sent."""
        result = self._provider.sampler.should_sample(None, trace_id, name)
        return result.decision is Decision.RECORD_AND_SAMPLE

    def send(self, trace_id: int, root: Span, children: Sequence[Span]) -> None:
        """Hand over a trace that is sampled. Never blocks and never raises for a collector that is away."""
        spans = 1 + len(children)
        if self._waiting + spans > self._most:
            self._dropped += spans
            return
        self._given += spans
        self._ids.trace_id, self._ids.span_id = trace_id, root.span_id
        first = self._tracer.start_span(
            root.name, start_time=root.start_ns, attributes=root.attributes, kind=SpanKind.INTERNAL
        )
        context = set_span_in_context(first)
        for child in children:
            self._ids.span_id = child.span_id
            span = self._tracer.start_span(
                child.name,
                context,
                start_time=child.start_ns,
                attributes=child.attributes,
                kind=SpanKind.CLIENT if child.outgoing else SpanKind.INTERNAL,
            )
            for name, at_ns in child.events:
                span.add_event(name, timestamp=at_ns)
            if child.error is not None:
                span.set_status(Status(StatusCode.ERROR, child.error))
            span.end(child.end_ns)
        if root.error is not None:
            first.set_status(Status(StatusCode.ERROR, root.error))
        first.end(root.end_ns)

    def statistics(self) -> dict[str, int]:
        """Spans ``exported``, ``failed`` (the collector did not take them), ``dropped`` for want of room, and
        those that are ``waiting``."""
        sent = self._sent
        return {
            "exported": sent.exported,
            "failed": sent.failed,
            "dropped": self._dropped,
            "waiting": self._waiting,
        }

    async def aclose(self) -> None:
        """Send what waits, for ``CLOSE_S`` at most."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=close, name="traces end", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_S):
                await closed.wait()
        except TimeoutError:
            self._sent.shutdown()  # ends a retry that is being waited for

    @property
    def _waiting(self) -> int:
        return self._given - self._sent.taken


class _Ids(RandomIdGenerator):
    """Gives the ids that are set, once each; random ones otherwise."""

    trace_id: int | None = None
    span_id: int | None = None

    def generate_trace_id(self) -> int:
        given, self.trace_id = self.trace_id, None
        return super().generate_trace_id() if given is None else given

    def generate_span_id(self) -> int:
        given, self.span_id = self.span_id, None
        return super().generate_span_id() if given is None else given


class _Counted(SpanExporter):
    """Counts what another exporter does, and says when that begins to fail and when it works again.

    ``taken``: spans that no longer wait.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False
        self.taken = self.exported = self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:
            result = SpanExportResult.FAILURE
            raise
        finally:
            self.taken += len(spans)
            failed = result is not SpanExportResult.SUCCESS
            if failed:
                self.failed += len(spans)
            else:
                self.exported += len(spans)
            if failed != self._failing:
                self._failing = failed
                _log.warning("traces: the collector takes %s", "none" if failed else "them again")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _resource(version: str) -> Resource:
    """Who sends; what the environment says of that counts."""
    told = Resource.create({SERVICE_VERSION: version})
    named = str(told.attributes[SERVICE_NAME])
    return told.merge(Resource({SERVICE_NAME: "vigil"})) if named.startswith("unknown_service") else told
