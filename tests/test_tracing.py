"""Traces of decisions: a served session's, as a collector gets them; and what they cost nobody."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.spans import Span
from orchestrator.exits import SetupError
from orchestrator.runtime.clock import SystemClock
from orchestrator.session.backend import TickDone, TickTimes
from orchestrator.session.fence import Fence
from orchestrator.setting_groups import TracingGroup
from orchestrator.tracing import SessionTracing, TickTracing, tracing_of
from tests.api.serving import Served
from tests.api.test_serving_store import Outage, store_of
from tests.fakes.collector import CLIENT, FakeCollector
from tests.fakes.engine import FakeEngine, Fault, of_kind
from tests.realtime.serving import eventually
from tests.realtime.test_voice_away import metric

WHOLE = {"tick", "ingress", "wait", "plan", "engine", "parse", "emit"}
QUESTION = "Is there a zebra?"
SPEAKS = "<response> A zebra. "


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said by this machine's environment, and spans are sent at once."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


def traced(collector: FakeCollector, **more: Any) -> dict[str, Any]:
    return {"tracing": {"endpoint": collector.root, **more}, "decision": {"gate": False}}


async def test_each_decision_is_one_trace_and_the_engine_is_told_of_it(tmp_path: Path) -> None:
    async with (
        FakeEngine(lambda seen: SPEAKS if seen.tick == 1 else "<silence>") as engine,
        FakeCollector() as collector,
        Served(engine, tmp_path, **traced(collector)) as served,
    ):
        for second in range(3):
            assert (await served.see(second, QUESTION if second == 0 else None)).status_code == 200
        await collector.until(lambda: len(collector.spans()) >= 3 * len(WHOLE))
        traces = list(collector.traces().values())
        session = (await served.client.get("/v1/sessions/cam")).json()["id"]
        asked = [seen for seen in engine.asked if seen.kind == "decide"]
    assert [set(trace) for trace in traces] == [WHOLE] * 3
    for trace, seen in zip(traces, asked, strict=True):
        root, engine_span = trace["tick"], trace["engine"]
        assert root.parent == "" and {trace[name].parent for name in WHOLE - {"tick"}} == {root.id}
        assert engine_span.span.kind == CLIENT
        trace_id = root.span.trace_id.hex()
        assert seen.headers["traceparent"] == f"00-{trace_id}-{engine_span.id}-01"
        ends = [root.span.start_time_unix_nano]
        for name in ("ingress", "wait", "plan", "engine", "parse", "emit"):
            each = trace[name].span
            assert each.start_time_unix_nano == ends[-1], "they follow each other without a gap"
            ends.append(each.end_time_unix_nano)
        assert ends[-1] == root.span.end_time_unix_nano and ends == sorted(ends)
        (first,) = engine_span.span.events
        assert first.name == "first_token"
        assert engine_span.span.start_time_unix_nano <= first.time_unix_nano <= ends[4]
        assert root.about["session.id"] == session and root.about["vigil.tenant"] == "local"
        assert engine_span.about["vigil.engine"] == engine.url.removeprefix("http://")
        assert engine_span.about["gen_ai.usage.input_tokens"] == seen.prompt_tokens
        assert engine_span.about["vigil.cached_tokens"] == seen.cached_tokens
        assert root.resource["service.name"] == "vigil"
    assert [trace["tick"].about["vigil.action"] for trace in traces] == ["silence", "response", "silence"]
    sent = b"".join(got.body for got in collector.got)
    assert b"zebra" not in sent, "no words leave with a trace"


async def test_what_goes_wrong_is_seen(tmp_path: Path) -> None:
    async with (
        FakeEngine() as engine,
        FakeCollector() as collector,
        Served(engine, tmp_path, **traced(collector)) as served,
    ):
        assert (await served.see(0, QUESTION)).status_code == 200
        engine.kill()
        await served.see(1)
        await collector.until(lambda: any(span.error for span in collector.spans()))
        (trace, *_) = (each for each in collector.traces().values() if each["tick"].error)
    assert trace["tick"].error == trace["engine"].error == "engine_unreachable"
    assert "first_token" not in {event.name for event in trace["engine"].span.events}


async def test_a_session_that_ends_leaves_no_engine_with_half_a_trace(tmp_path: Path) -> None:
    """Every trace that an engine is told of is made, whatever ends its decision."""
    async with FakeEngine() as engine, FakeCollector() as collector:
        async with Served(engine, tmp_path, **traced(collector)) as served:
            assert (await served.see(0, QUESTION)).status_code == 200
            engine.faults.append(Fault(hang=True, when=of_kind("decide")))
            waits = asyncio.create_task(served.see(1))
            await eventually(lambda: len([seen for seen in engine.asked if seen.kind == "decide"]) == 2)
            (session,) = served.core.registry.sessions()
            assert (await served.client.delete(f"/v1/sessions/{session.id}")).status_code == 200
            await waits
        traces = collector.traces()
    told = [seen.headers["traceparent"] for seen in engine.asked if seen.kind == "decide"]
    assert {each.split("-")[1] for each in told} == set(traces)
    cut = traces[told[1].split("-")[1]]
    assert cut["engine"].id == told[1].split("-")[2]
    assert cut["tick"].error == cut["engine"].error == "deleted"
    assert cut["tick"].about["vigil.status"] == "cut"


async def test_a_decision_that_can_t_be_kept_is_a_whole_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes while the engine answers: that ends the session, and the trace is made all the same."""
    async with FakeEngine() as engine, FakeCollector() as collector:
        async with Served(engine, tmp_path, **traced(collector)) as served:
            assert (await served.see(0, QUESTION)).status_code == 200
            engine.faults.append(Fault(delay_s=0.3, when=of_kind("decide")))
            waits = asyncio.create_task(served.see(1))
            await eventually(lambda: len([seen for seen in engine.asked if seen.kind == "decide"]) == 2)
            outage = Outage(store_of(served), monkeypatch)
            outage.begin()
            assert (await waits).status_code == 503
            outage.end()
        traces = collector.traces()
    told = [seen.headers["traceparent"] for seen in engine.asked if seen.kind == "decide"]
    assert {each.split("-")[1] for each in told} == set(traces)
    cut = traces[told[1].split("-")[1]]
    assert cut["tick"].error == cut["engine"].error
    assert cut["tick"].about["vigil.status"] == "cut"


async def test_a_decision_that_needs_no_engine_has_no_span_of_one(tmp_path: Path) -> None:
    async with (
        FakeEngine() as engine,
        FakeCollector() as collector,
        Served(engine, tmp_path, tracing={"endpoint": collector.root}) as served,
    ):
        assert (await served.see(0)).json()["interaction"]["reason"] == "gated"
        await collector.until(lambda: len(collector.spans()) >= 4)
        (trace,) = collector.traces().values()
    assert set(trace) == WHOLE - {"plan", "engine", "parse"}
    assert trace["tick"].about["vigil.reason"] == "gated"


async def test_a_collector_that_never_answers_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "30")
    async with (
        FakeEngine() as engine,
        FakeCollector([0]) as collector,
        Served(engine, tmp_path, **traced(collector)) as served,
    ):
        for second in range(12):
            assert (await served.see(second)).status_code == 200
        text = (await served.client.get("/metrics")).text
    assert metric(text, 'trace_spans_total{outcome="exported"}') == 0
    assert metric(text, 'trace_spans_total{outcome="dropped"}') == 8 * len(WHOLE), "whole traces"
    assert metric(text, "trace_spans_waiting") == 4 * len(WHOLE) <= 30
    assert metric(text, 'ticks_total{action="silence",reason="model"}') == 12


async def test_a_collector_that_refuses_is_counted(tmp_path: Path) -> None:
    async with (
        FakeEngine() as engine,
        FakeCollector([400]) as collector,
        Served(engine, tmp_path, **traced(collector)) as served,
    ):
        await served.see(0)
        await collector.until(lambda: bool(collector.got))
        tracing = served.core.tracing
        assert tracing is not None
    assert tracing._traces.statistics()["failed"] == len(WHOLE), "what waits is sent at the end"


async def test_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEngine() as engine, FakeCollector() as collector:
        for name in "abc":
            (tmp_path / name).mkdir()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.root)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=night")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "eyes")
        async with Served(engine, tmp_path / "a", decision={"gate": False}) as served:
            await served.see(0)
        assert {span.resource["service.name"] for span in collector.spans()} == {"eyes"}
        assert collector.taken[0].headers["x-team"] == "night"
        before = len(collector.got)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        async with Served(engine, tmp_path / "b", decision={"gate": False}) as served:
            await served.see(0)
        assert engine.asked[-1].headers["traceparent"].endswith("-00"), "an engine does not trace it either"
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        async with Served(engine, tmp_path / "c", **traced(collector)) as served:
            await served.see(0)
        assert "traceparent" not in engine.asked[-1].headers
        assert len(collector.got) == before


async def test_some_of_them_whole(tmp_path: Path) -> None:
    async with FakeEngine() as engine, FakeCollector() as collector:
        async with Served(engine, tmp_path, **traced(collector, sample=0.5)) as served:
            for second in range(24):
                await served.see(second)
        told = [seen.headers["traceparent"] for seen in engine.asked if seen.kind == "decide"]
        traces = collector.traces()
    assert 0 < len(traces) < 24
    assert {each.split("-")[1] for each in told if each.endswith("-01")} == set(traces)
    assert all(set(trace) == WHOLE for trace in traces.values())


# --- off, and the settings ---------------------------------------------------------------------------------


async def test_nothing_is_said_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, decision={"gate": False}) as served:
        await served.see(0)
        assert "trace_spans" not in (await served.client.get("/metrics")).text
    assert not [seen for seen in engine.asked if "traceparent" in seen.headers]


def test_nothing_is_loaded_unless_it_is_asked_for() -> None:
    check = "import sys, orchestrator.app; sys.exit('opentelemetry.sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=150).returncode == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_SDK_DISABLED", "true"),
    ],
)
def test_what_the_environment_rules_out(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(variable, value)
    assert tracing_of(TracingGroup(), SystemClock()) is None  # type: ignore[call-arg]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    named = TracingGroup(endpoint="http://127.0.0.1:9")  # type: ignore[call-arg]
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    with pytest.raises(SetupError, match="traces: "):
        tracing_of(named, SystemClock())
    monkeypatch.setitem(sys.modules, "bridges.traces", None)
    with pytest.raises(SetupError, match=re.escape("pip install 'vigil[otel]'")):
        tracing_of(named, SystemClock())


# --- what becomes of a tick's times ------------------------------------------------------------------------

SECONDS = st.floats(0, 1e6)


class Kept:
    """Traces that stay here."""

    def __init__(self) -> None:
        self.sent: list[tuple[Span, list[Span]]] = []

    def sampled(self, trace_id: int, name: str) -> bool:
        return True

    def send(self, trace_id: int, root: Span, children: list[Span]) -> None:
        self.sent.append((root, children))


@given(
    st.lists(SECONDS, min_size=7, max_size=7).map(sorted),
    st.booleans(),
    st.booleans(),
    st.permutations(["admitted", "due"]),
)
def test_every_span_is_within_its_tick(
    moments: list[float], asked: bool, answered: bool, first: list[str]
) -> None:
    early, late = moments[:2]
    at = dict(zip(first, (early, late), strict=True))
    times = TickTimes(
        at["admitted"],
        at["due"],
        moments[2],
        moments[6],
        asked=moments[3] if asked else None,
        first_token=moments[4] if asked and answered else None,
        answered=moments[5] if asked and answered else None,
    )
    kept = Kept()
    session = SessionTracing(TickTracing(kept, After(moments[6])), After(moments[6]), "s", "t")  # type: ignore[arg-type]
    session.seen(TickDone(Fence(), 1, (), {"status": "completed"}, None, times))
    ((root, children),) = kept.sent
    assert all(root.start_ns <= each.start_ns <= each.end_ns <= root.end_ns for each in children)
    assert all(before.end_ns == after.start_ns for before, after in pairwise(children))
    assert ("engine" in {each.name for each in children}) == asked


class After:
    """A clock that stands at the end of a tick."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return 1_700_000_000_000


def test_times_of_appends_that_no_tick_shows_are_forgotten() -> None:
    session = SessionTracing(TickTracing(Kept(), After(0)), After(0), "s", "t")  # type: ignore[arg-type]
    for number in range(1000):
        session.appended(f"op-{number}")
    assert len(session._came) == 256
    session.seen(TickDone(Fence(), 1, ("op-999",), {"status": "dropped"}))
    assert len(session._came) == 255
