"""A collector of traces that takes OTLP over HTTP on a real socket. ::

async with FakeCollector() as collector:
    collector.root, collector.traces() ...
"""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.fakes.receiver import FakeReceiver

ERROR = trace_pb2.Status.STATUS_CODE_ERROR
CLIENT = trace_pb2.Span.SPAN_KIND_CLIENT

Value = str | int | float | bool


@dataclass(frozen=True)
class Taken:
    """A span as it arrived."""

    span: trace_pb2.Span
    resource: dict[str, Value]

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def id(self) -> str:
        return self.span.span_id.hex()

    @property
    def parent(self) -> str:
        return self.span.parent_span_id.hex()

    @property
    def about(self) -> dict[str, Value]:
        return _values(self.span.attributes)

    @property
    def error(self) -> str | None:
        return self.span.status.message if self.span.status.code == ERROR else None


class FakeCollector(FakeReceiver):
    """See ``FakeReceiver`` for its script."""

    @property
    def root(self) -> str:
        return self.url.removesuffix("/events")

    def spans(self) -> list[Taken]:
        """All that it took, as they came."""
        found: list[Taken] = []
        for got in self.taken:
            assert got.headers["content-type"] == "application/x-protobuf"
            request = ExportTraceServiceRequest.FromString(got.body)
            for of in request.resource_spans:
                resource = _values(of.resource.attributes)
                found += [Taken(span, resource) for scope in of.scope_spans for span in scope.spans]
        return found

    def traces(self) -> dict[str, dict[str, Taken]]:
        """By trace id the spans by their names."""
        traces: dict[str, dict[str, Taken]] = {}
        for taken in self.spans():
            named = traces.setdefault(taken.span.trace_id.hex(), {})
            assert taken.name not in named
            named[taken.name] = taken
        return traces


def _values(attributes: object) -> dict[str, Value]:
    told: dict[str, Value] = {}
    for each in attributes:  # type: ignore[attr-defined]
        assert isinstance(each, KeyValue)
        told[each.key] = getattr(each.value, each.value.WhichOneof("value") or "string_value")
    return told
