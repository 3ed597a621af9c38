"""``vigil top``: a running service at a glance, from its ``/metrics``, refreshed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.attach_cli import HERE, ApiKey, Server
from orchestrator.exits import Exit

TIMEOUT_S = 5.0
TENANTS = 10
"""Shown, those that ask most."""

Labels = tuple[tuple[str, str], ...]
Scrape = dict[str, dict[Labels, float]]
"""Samples by name without prefix, then by labels."""


class TopError(Exception):
    """The service tells nothing. The message says why."""


def top(
    server: Server = HERE,
    api_key: ApiKey = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="S", help="Between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print, and return.")] = False,
) -> None:
    """Sessions, engines, lateness, reuse and refusals of a running service. Ctrl-C ends it.

    Rates are of the time between two looks. An operator's key shows tenants too.
    """
    console = Console()
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(
            base_url=server.rstrip("/"), headers=headers, timeout=TIMEOUT_S, trust_env=False
        ) as http:
            before, at = _scrape(http), time.monotonic()
            time.sleep(every)
            now = _scrape(http)
            shown = page(now, before, time.monotonic() - at)
            if once:
                console.print(shown)
                return
            with Live(shown, console=console, screen=console.is_terminal, auto_refresh=False) as live:
                while True:
                    before, at = now, time.monotonic()
                    time.sleep(every)
                    now = _scrape(http)
                    live.update(page(now, before, time.monotonic() - at), refresh=True)
    except TopError as error:
        typer.echo(f"vigil: {error}", err=True)
        raise typer.Exit(Exit.FAILED) from error
    except KeyboardInterrupt:
        return


def read(text: str) -> Scrape:
    """:raises TopError: it is no scrape of a service"""
    found: Scrape = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("vigil_"):
                    labels = tuple(sorted(sample.labels.items()))
                    found.setdefault(sample.name.removeprefix("vigil_"), {})[labels] = sample.value
    except ValueError:
        found = {}
    if not found:
        raise TopError("what answers there is no vigil serve")
    return found


def page(now: Scrape, before: Scrape, seconds: float) -> Group:
    """:param seconds: between the two scrapes"""

    def rate(name: str) -> float:
        return max(0.0, _sum(now, name) - _sum(before, name)) / seconds

    prompt, cached = rate("prompt_tokens_total"), rate("cached_tokens_total")
    ticks = rate("tick_latency_seconds_count")
    mean = rate("tick_latency_seconds_sum") / ticks if ticks else None
    states = {dict(labels).get("of", ""): value for labels, value in now.get("sessions", {}).items()}
    head = Text(
        f"sessions {states.get('open', 0):g} of {_sum(now, 'sessions_limit'):g}"
        f"   ticks {rate('ticks_total'):.1f}/s"
        f"   failed {rate('tick_failures_total'):.1f}/s"
        f"   latency {'-' if mean is None else f'{mean * 1000:.0f} ms'}"
        f"   reuse {'-' if not prompt else f'{cached / prompt:.1%}'}"
        f"   refused {_sum(now, 'sessions_refused'):g}"
        f"   frames waiting {_sum(now, 'frames_waiting'):g}"
    )
    parts: list[Text | Table] = [head]
    if engines := _by(now, "engine_up", "engine"):
        parts.append(_engines(now, engines))
    if tenants := _by(now, "tenant_ticks_total", "tenant"):
        parts.append(_tenants(now, before, tenants, seconds))
    return Group(*parts)


def _engines(now: Scrape, up: Mapping[str, float]) -> Table:
    table = Table("engine", "up", "sessions", "limit", "late (periods)", "reuse", "KV", "running", "waiting")

    def cell(name: str, engine: str, form: str = "g") -> str:
        value = _by(now, f"engine_{name}", "engine").get(engine)
        return "-" if value is None else format(value, form)

    for engine, alive in sorted(up.items()):
        draining = _by(now, "engine_draining", "engine").get(engine)
        table.add_row(
            engine,
            ("draining" if draining else "up") if alive else "down",
            cell("sessions", engine),
            cell("sessions_limit", engine),
            cell("lateness_periods", engine, ".2f"),
            cell("reuse_ratio", engine, ".1%"),
            cell("kv_usage_ratio", engine, ".0%"),
            cell("requests_running", engine),
            cell("requests_waiting", engine),
        )
    return table


def _tenants(now: Scrape, before: Scrape, ticks: Mapping[str, float], seconds: float) -> Table:
    table = Table("tenant", "ticks/s", "prompt tokens/s", "reuse")
    past = {name: _by(before, name, "tenant") for name in _COUNTED}
    rates = {
        name: {t: (value - past[name].get(t, 0.0)) / seconds for t, value in _by(now, name, "tenant").items()}
        for name in _COUNTED
    }
    for tenant in sorted(ticks, key=lambda each: -rates[_COUNTED[0]][each])[:TENANTS]:
        asked, prompt, cached = (rates[name].get(tenant, 0.0) for name in _COUNTED)
        table.add_row(tenant, f"{asked:.1f}", f"{prompt:.0f}", f"{cached / prompt:.1%}" if prompt else "-")
    return table


_COUNTED = ("tenant_ticks_total", "tenant_prompt_tokens_total", "tenant_cached_tokens_total")


def _sum(scrape: Scrape, name: str) -> float:
    return sum(scrape.get(name, {}).values())


def _by(scrape: Scrape, name: str, label: str) -> dict[str, float]:
    return {dict(labels).get(label, ""): value for labels, value in scrape.get(name, {}).items()}


def _scrape(http: httpx.Client) -> Scrape:
    try:
        response = http.get("/metrics")
    except (httpx.HTTPError, httpx.InvalidURL) as away:
        raise TopError(f"can't reach {http.base_url}: {away or type(away).__name__}") from away
    if response.status_code != 200:
        raise TopError(f"{http.base_url} answered with status {response.status_code}; is the key right?")
    return read(response.text)
