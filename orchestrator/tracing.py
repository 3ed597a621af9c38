"""Each decision as a trace: what it waited for and where its time went, for an OpenTelemetry collector.

An observer: it looks at what a session's backend puts out, and adds a header to what the engine is asked. A
trace's ids follow from the session and the number of the tick: the engine is told of it before it is made. No
words and no pictures are in it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from bridges.engine import ChatEngine, ChatEvent, ChatRequest, ImageBytes
from bridges.spans import Span, Value
from orchestrator.api.readings import Reading, Readings
from orchestrator.exits import Exit, SetupError
from orchestrator.replay_track import Outside
from orchestrator.session.backend import (
    MAX_OUTPUT_TOKENS,
    BackendOutput,
    Clock,
    TickDone,
    TickStarted,
    TickTimes,
)
from orchestrator.setting_groups import TracingGroup
from orchestrator.version import vigil_version

if TYPE_CHECKING:
    from bridges.traces import OtlpTraces

_log = logging.getLogger(__name__)

NAME = "tick"
APPENDS = 256
"""Of one session, whose times are remembered until a tick has shown them."""
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"

_ASKED = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "vigil.cached_tokens",
    "expected_cached_tokens": "vigil.expected_cached_tokens",
    "shortfall": "vigil.shortfall",
    "body_bytes": "vigil.body_bytes",
    "retries": "vigil.retries",
    "path": "vigil.prompt_path",
}
_TICK = {
    "tick": "vigil.tick",
    "action": "vigil.action",
    "reason": "vigil.reason",
    "status": "vigil.status",
    "frames": "vigil.frames",
    "window": "vigil.window",
    "window_frames": "vigil.window_frames",
}


class TickTracing:
    """Of all sessions of a service.

    :param traces: where they go
    """

    def __init__(self, traces: OtlpTraces, clock: Clock) -> None:
        self._traces = traces
        self._clock = clock
        self._salt = secrets.token_bytes(16)
        self._engines: WeakValueDictionary[str, _TracedEngine] = WeakValueDictionary()

    def through(self, session_id: str, asked: Outside) -> Outside:
        """Stands between a session and its engine: each decision asked for carries its trace."""
        engine = self._engines[session_id] = _TracedEngine(asked.engine, self, self._clock, session_id)
        return replace(asked, engine=engine)

    def session(self, session_id: str, tenant: str) -> SessionTracing:
        return SessionTracing(self, self._clock, session_id, tenant)

    def sampled(self, trace_id: int) -> bool:
        return self._traces.sampled(trace_id, NAME)

    def send(self, trace_id: int, root: Span, children: Sequence[Span]) -> None:
        self._traces.send(trace_id, root, children)

    def ids(self, session_id: str, tick: str) -> tuple[int, int]:
        """Of a tick: its trace's, and that of the span in which the engine is asked."""
        key = f"{session_id} {tick}".encode()
        digest = hashlib.blake2b(key, digest_size=24, key=self._salt).digest()
        return int.from_bytes(digest[:16]), int.from_bytes(digest[16:])

    def asked(self, session_id: str, tick: str) -> float | None:
        """When the engine was asked for a decision, if it was; known until the next one is asked for."""
        engine = self._engines.get(session_id)
        return engine.asked_at if engine is not None and engine.asked == tick else None

    def readings(self) -> Readings:
        figures = self._traces.statistics()
        return {
            "trace_spans_total": Reading(
                "spans of decisions, by what became of them",
                {each: float(figures[each]) for each in ("exported", "failed", "dropped")},
                "outcome",
            ),
            "trace_spans_waiting": Reading("spans that were not sent yet", float(figures["waiting"])),
        }

    async def aclose(self) -> None:
        await self._traces.aclose()


class SessionTracing:
    """Of one session; see ``TickTracing.session``."""

    def __init__(self, tracing: TickTracing, clock: Clock, session_id: str, tenant: str) -> None:
        self._tracing = tracing
        self._clock = clock
        self._session_id = session_id
        self._common: dict[str, Value] = {"session.id": session_id, "vigil.tenant": tenant}
        self._came: OrderedDict[str, float] = OrderedDict()
        self._flight: tuple[TickStarted, float] | None = None

    def appended(self, operation_id: str) -> None:
        """An append comes in."""
        self._came[operation_id] = self._clock.now()
        if len(self._came) > APPENDS:
            self._came.popitem(last=False)

    def seen(self, output: BackendOutput) -> None:
        """Something was put out by the backend."""
        match output:
            case TickStarted():
                self._flight = output, self._clock.now()
            case TickDone():
                self._flight = None
                self._done(output)

    def ended(self, reason: str) -> None:
        """Nothing more comes of the session. A decision that is still open has its trace all the same: the
        engine was told of it."""
        if self._flight is not None:
            started, at = self._flight
            self._flight = None
            self._done(self._cut(started, at, reason))

    def _cut(self, started: TickStarted, at: float, reason: str) -> TickDone:
        """A decision that was still open as its session ended: nobody tells more of it."""
        asked = self._tracing.asked(self._session_id, str(started.tick))
        times = TickTimes(at, at, at, self._clock.now(), asked if asked is None else max(at, asked))
        record = {"tick": started.tick, "status": "cut"}
        return TickDone(started.fence, started.tick, started.operations, record, reason, times)

    def _done(self, output: TickDone) -> None:
        came = [at for each in output.operations if (at := self._came.pop(each, None)) is not None]
        if output.times is None:
            return
        trace_id, engine_span = self._tracing.ids(self._session_id, str(output.tick))
        if self._tracing.sampled(trace_id):
            root, children = self._spans(output, output.times, max(came, default=None), engine_span)
            self._tracing.send(trace_id, root, children)

    def _spans(
        self, done: TickDone, times: TickTimes, came: float | None, engine_span: int
    ) -> tuple[Span, list[Span]]:
        clock, record = self._clock, done.record
        now = clock.now()
        broken = record.get("status") == "incomplete" and record.get("reason") != MAX_OUTPUT_TOKENS
        error = done.error_code or (record.get("reason") if broken else None)
        since = clock.wall_ms() * 1_000_000 - round(now * 1e9)
        about = self._common | _told(record, {"engine": "vigil.engine"})
        waits = min(times.admitted, times.due)
        begins = min(waits, came if came is not None else waits)

        def at(seconds: float) -> int:
            return since + round(seconds * 1e9)

        def span(name: str, start: float, end: float, **more: Any) -> Span:
            more["attributes"] = {**about, **more.get("attributes", {})}
            return Span(name, at(start), at(max(start, end)), **more)

        children: list[Span] = []
        if came is not None:
            children.append(span("ingress", came, waits))
        children.append(span("wait", waits, times.begun, events=(("due", at(times.due)),)))
        if times.asked is not None:
            answered = times.judged if times.answered is None else times.answered
            children.append(span("plan", times.begun, times.asked))
            children.append(
                span(
                    "engine",
                    times.asked,
                    answered,
                    attributes=_told(record, _ASKED),
                    events=() if times.first_token is None else (("first_token", at(times.first_token)),),
                    outgoing=True,
                    span_id=engine_span,
                    error=error,
                )
            )
            children.append(span("parse", answered, times.judged))
        children.append(span("emit", times.begun if times.asked is None else times.judged, now))
        root = span(NAME, begins, now, attributes=_told(record, _TICK), error=error)
        return root, children


class _TracedEngine:
    """``ChatEngine`` of one session: what asks for a decision carries that decision's trace.

    ``asked``: the tick that was asked for last, at ``asked_at``.
    """

    def __init__(self, engine: ChatEngine, tracing: TickTracing, clock: Clock, session_id: str) -> None:
        self._engine = engine
        self._tracing = tracing
        self._clock = clock
        self._session_id = session_id
        self.asked, self.asked_at = "", 0.0

    def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]:
        purpose, _, tick = request.purpose.partition(" ")
        if purpose == "decision":
            trace_id, span_id = self._tracing.ids(self._session_id, tick)
            flags = int(self._tracing.sampled(trace_id))
            self.asked, self.asked_at = tick, self._clock.now()
            request = replace(request, traceparent=f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
        return self._engine.chat(request, images)

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return await self._engine.tokenize(messages, images)

    async def ping(self, timeout_s: float) -> bool:
        return await self._engine.ping(timeout_s)

    async def aclose(self) -> None:
        await self._engine.aclose()


def tracing_of(named: TracingGroup, clock: Clock) -> TickTracing | None:
    """``None``: neither the settings nor the environment name a collector.

    :raises SetupError: one is named, and the extra is missing or a variable is wrong
    """
    if not _wanted(named, os.environ):
        return None
    try:
        from bridges.traces import OtlpTraces
    except ImportError as missing:
        told = "traces need the extra otel: pip install 'vigil[otel]'"
        raise SetupError(f"{told} ({missing})", "tracing_unavailable", Exit.USAGE) from missing
    try:
        return TickTracing(OtlpTraces(named.endpoint, named.sample, vigil_version()), clock)
    except ValueError as wrong:
        raise SetupError(f"traces: {wrong}", "tracing_refused", Exit.USAGE) from wrong


def _wanted(named: TracingGroup, environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if named.endpoint is not None:
        return True
    if not any(environ.get(each) for each in ENDPOINTS):
        return False
    if environ.get("OTEL_TRACES_EXPORTER") not in (None, "", "otlp"):
        return False
    protocol = next((told for each in PROTOCOLS if (told := environ.get(each))), HTTP)
    if protocol != HTTP:
        _log.warning(
            "no traces: OTEL_EXPORTER_OTLP_PROTOCOL asks for %s, and only %s is spoken", protocol, HTTP
        )
        return False
    return True


def _told(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Value]:
    """What a record tells, as attributes."""
    return {name: record[key] for key, name in names.items() if record.get(key) is not None}
