"""``vigil top``: what it makes of two scrapes."""

from __future__ import annotations

import asyncio
import io
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from rich.console import Console

from orchestrator.client import VigilClient
from orchestrator.top_cli import BAD, ENGINES, Look, TopError, _Packed, page, read
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine
from tests.native.serving import NativeServed, reference

SERVER = "http://127.0.0.1:8070"


async def shown(look: Look, width: int = 80) -> str:
    console = Console(width=width, record=True)
    await asyncio.to_thread(console.print, page(look, SERVER))
    return console.export_text()


async def test_a_served_session_is_seen(tmp_path: Path) -> None:
    async with FakeEngine(["</silence>"], image_tokens=16) as fake, Served(fake, tmp_path) as served:
        before = read((await served.client.get("/metrics")).text)
        for number in range(3):
            assert (await served.see(number, "Say." if number == 0 else None)).status_code == 200
        now = read((await served.client.get("/metrics")).text)
    told = await shown(Look(now, before, 1.0))
    lines = told.splitlines()
    assert lines[0].endswith(f"at {SERVER}, engines ready")
    assert "sessions 1 of 64" in lines[1] and "decisions 3.0/s" in lines[1]
    assert fake.url.removeprefix("http://") in told, "an engine's name is whole on a narrow screen"
    assert "local" in told, "on this machine, without keys, tenants are shown"
    assert max(map(len, lines)) <= 80


async def test_a_full_duplex_service_is_seen(tmp_path: Path) -> None:
    opening = {"modalities": ["audio", "text"], "ref_audio": reference()}
    async with NativeServed(tmp_path, engines=2) as served, VigilClient(served.url, session=opening):
        scrape = read((await served.client.get("/metrics")).text)
    told = await shown(Look(scrape, scrape, 1.0))
    assert "pace" in told and "units waiting" in told and "late" not in told
    rows = [line.split() for line in told.splitlines() if line.startswith(" 127.0.0.1:")]
    assert sorted(row[1:3] for row in rows) == [["up", "0/4"], ["up", "1/4"]]


def test_what_is_wrong_is_marked() -> None:
    text = """
vigil_sessions_limit 8.0
vigil_engine_ready 0.0
vigil_engine_up{engine="a"} 0.0
vigil_tick_failures_total{code="engine_timeout",engine="a"} %d.0
"""
    look = Look(read(text % 5), read(text % 3), 2.0)
    figures = page(look, SERVER).renderables[1]
    assert isinstance(figures, _Packed)
    marked = [piece.plain for piece in figures.pieces if any(span.style == BAD for span in piece.spans)]
    assert marked == ["failed 1.0/s"]


async def test_of_many_engines_those_that_fare_badly_come_first() -> None:
    """What is left out is counted, and not looked at: with thousands of engines that took seconds."""
    text = "vigil_sessions_limit 8.0\n" + "".join(
        f'vigil_engine_up{{engine="e{n:04}"}} {float(n != 3777)}\n'
        f'vigil_engine_lateness_periods{{engine="e{n:04}"}} {1.5 if n == 2500 else 0.1}\n'
        for n in range(4000)
    )
    look = Look(read(text), read(text), 1.0)
    told = await shown(look)
    names = [found for line in told.splitlines() for found in re.findall(r"^ *(e\d{4}) ", line)]
    assert names[:3] == ["e3777", "e2500", "e0000"]
    assert len(names) == ENGINES and f"and {4000 - ENGINES} more" in told


async def test_who_waits_for_decisions_is_told_by_tenant() -> None:
    text = """vigil_sessions_limit 8.0
vigil_tenant_ticks_total{tenant="ann"} %d.0
vigil_tenant_tick_latency_seconds_count{tenant="ann"} %d.0
vigil_tenant_tick_latency_seconds_sum{tenant="ann"} %s
vigil_tenant_ticks_total{tenant="bob"} 1.0
"""
    told = await shown(Look(read(text % (8, 8, "3.2")), read(text % (4, 4, "1.2")), 2.0))
    ann, bob = (next(line for line in told.splitlines() if name in line).split() for name in ("ann", "bob"))
    assert ann[:4] == ["ann", "2.0", "0.0", "500"] and bob[3] == "-"


def told_of(engine: str, tenant: str) -> Look:
    """What a service with that engine and that tenant tells."""
    registry = CollectorRegistry()
    Gauge("vigil_sessions_limit", "-", registry=registry).set(8)
    Gauge("vigil_engine_up", "-", ["engine"], registry=registry).labels(engine).set(1)
    Counter("vigil_tenant_ticks", "-", ["tenant"], registry=registry).labels(tenant).inc()
    scrape = read(generate_latest(registry).decode())
    return Look(scrape, scrape, 1.0)


@pytest.mark.parametrize("name", ["[fe80::1]:8000", "[/red]x", "a:smile:b", "back\\slash", "見張り"])
async def test_names_are_shown_as_they_are(name: str) -> None:
    assert (await shown(told_of(name, name))).count(name) == 2


@given(st.text(), st.text(), st.integers(1, 90))
def test_no_name_breaks_the_page_or_moves_the_cursor(engine: str, tenant: str, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(page(told_of(engine, tenant), SERVER))
    lines = console.export_text().split("\n")
    assert all(c.isprintable() for line in lines for c in line)


def test_figures_beside_a_long_name_are_whole() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(page(told_of("e" * 300, "t" * 300), SERVER))
    told = console.export_text()
    assert told.count("e" * 12) and "sessions" in told and "…" not in told


async def test_into_a_pipe_one_look_comes_after_the_other_until_it_is_interrupted(tmp_path: Path) -> None:
    async with FakeEngine(["</silence>"]) as fake, Served(fake, tmp_path) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orchestrator.cli", "top", "--server", served.url, "--every", "0.2"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(60):
                for _ in range(2):
                    await process.stdout.readuntil(b"engines ready")
                await served.leave()
                await process.stdout.readuntil(b"can't reach")
                assert b"engines ready" in await process.stdout.readuntil(b"engines ready")
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


def test_what_is_no_service() -> None:
    for text in ("<html>", "vllm:num_requests_running 1.0\n"):
        with pytest.raises(TopError):
            read(text)


@given(st.lists(st.floats(0.001, 29), min_size=1, max_size=200), st.sampled_from([0.5, 0.95]))
def test_a_quantile_lies_in_the_bucket_that_has_it(values: list[float], share: float) -> None:
    ends = [0.01, 0.1, 0.5, 1.0, 5.0, 30.0, float("inf")]
    counts: dict[tuple[tuple[str, str], ...], float] = {
        (("le", str(end)),): float(sum(value <= end for value in values)) for end in ends
    }
    found = Look({"x_bucket": counts}, {}, 1.0).quantile("x", share)
    true = sorted(values)[max(0, -(-len(values) * round(share * 100) // 100) - 1)]
    end = next(end for end in ends if true <= end)
    assert found is not None
    assert ([0.0, *ends])[ends.index(end)] <= found <= end


def test_a_service_that_was_started_anew_has_counted_from_zero() -> None:
    look = Look({"ticks_total": {(): 4.0}}, {"ticks_total": {(): 100.0}}, 2.0)
    assert look.rate("ticks_total") == 2.0
    assert look.quantile("x", 0.5) is None
