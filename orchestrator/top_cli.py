"""``vigil top``: a running service at a glance, from its ``/metrics``, refreshed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bridges.answers import answered_now
from orchestrator.attach_cli import HERE, ApiKey, Server
from orchestrator.exits import Exit

TIMEOUT_S = 5.0
MOST = 32 * 2**20
"""Bytes of a scrape."""
ENGINES = 32
"""Shown, those with which something is wrong first."""
TENANTS = 10
"""Shown, those that ask most."""
NAME = 12
"""Characters of a name that a line has at least."""
LATE, KEPT = 1.0, 0.8
"""Answers in periods and share of promised tokens from which on something is wrong, as for admission."""
BAD = "bold red"

Labels = tuple[tuple[str, str], ...]
Scrape = dict[str, dict[Labels, float]]
"""Samples by name without prefix, then by labels."""


class TopError(Exception):
    """The service tells nothing. The message says why."""

    exit_code = Exit.FAILED


class Away(TopError):
    exit_code = Exit.ENGINE_UNREACHABLE


def top(
    server: Server = HERE,
    api_key: ApiKey = None,
    every: Annotated[float, typer.Option(min=0.2, max=3600.0, metavar="S", help="Between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print, and return.")] = False,
) -> None:
    """Sessions, engines, lateness, reuse and refusals of a running service. Ctrl-C ends it.

    Rates and latencies are of the time between two looks. An operator's key shows tenants too.
    """
    console = Console()
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(
            base_url=server.rstrip("/"), headers=headers, timeout=TIMEOUT_S, trust_env=False
        ) as http:
            looks = _looks(http, every)
            shown = page(next(looks), server)
            if once:
                console.print(shown)
                return
            with _screen(console) as show:
                show(shown)
                while True:
                    try:
                        shown = page(next(looks), server)
                        show(shown)
                    except TopError as away:
                        # It may be on its way back: what was seen last stays, and that it is old is said.
                        show(Group(Text(str(away), style=BAD), shown))
                        looks = _looks(http, every)
                        time.sleep(every)
    except TopError as error:
        typer.echo(f"vigil: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt:
        return


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Shows one page after the other: in the same place, or below each other where nobody looks."""
    if not console.is_terminal:
        yield console.print
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda shown: live.update(shown, refresh=True)


@dataclass(frozen=True)
class Look:
    """Two scrapes. ``seconds``: between them."""

    now: Scrape
    before: Scrape
    seconds: float

    def sum(self, name: str) -> float:
        return sum(self.now.get(name, {}).values())

    def rate(self, name: str, **labels: str) -> float:
        """A second. A service that was started anew has counted from zero."""
        return sum(self.grown(name, **labels).values()) / self.seconds

    def grown(self, name: str, **labels: str) -> dict[Labels, float]:
        past, wanted = self.before.get(name, {}), set(labels.items())
        return {
            key: value - past.get(key, 0.0) if value >= past.get(key, 0.0) else value
            for key, value in self.now.get(name, {}).items()
            if wanted <= set(key)
        }

    def by(self, name: str, label: str) -> dict[str, float]:
        return {dict(key).get(label, ""): value for key, value in self.now.get(name, {}).items()}

    def quantile(self, name: str, share: float, **labels: str) -> float | None:
        """Of a histogram's newest observations, within its buckets evenly; ``None``: there are none."""
        counts: dict[float, float] = {}
        for key, count in self.grown(f"{name}_bucket", **labels).items():
            try:
                end = float(dict(key)["le"])
            except (KeyError, ValueError):
                continue  # of no histogram
            counts[end] = counts.get(end, 0.0) + count
        if not counts or not (most := max(counts.values())):
            return None
        begin, below = 0.0, 0.0
        for end, count in sorted(counts.items()):
            if count >= share * most:
                inside = (share * most - below) / (count - below) if count > below else 1.0
                return begin if end == float("inf") else begin + (end - begin) * inside
            begin, below = end, count
        return begin


def read(text: str) -> Scrape:
    """:raises TopError: it is no scrape of a service"""
    found: Scrape = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(("vigil_", "process_")):
                    labels = tuple(sorted((key, _plain(value)) for key, value in sample.labels.items()))
                    found.setdefault(sample.name.removeprefix("vigil_"), {})[labels] = sample.value
    except ValueError:
        found = {}
    if "sessions_limit" not in found:
        raise TopError("what answers there is no vigil serve")
    return found


def _plain(value: str) -> str:
    """A name that a terminal may show: whoever chose it, it moves no cursor and begins no line."""
    return "".join(c if c.isprintable() else "\ufffd" for c in value)


def page(look: Look, server: str) -> Group:
    """:param server: its address, to be shown"""
    parts = [*_head(look, server)]
    if engines := look.by("engine_up", "engine"):
        parts.append(_engines(look, engines))
    if tenants := look.by("tenant_ticks_total", "tenant"):
        parts.append(_tenants(look, tenants))
    return Group(*parts)


def _head(look: Look, server: str) -> Iterator[RenderableType]:
    version = next(iter(look.by("build_info", "version")), "")
    state = next((name for name, on in look.by("engine_state", "state").items() if on), "")
    state = "draining" if look.sum("draining") else f"engines {state}"
    failed, prompt = look.rate("tick_failures_total"), look.rate("prompt_tokens_total")
    waits = "units" if "units_waiting" in look.now else "frames"
    refused, lately = look.sum("sessions_refused_total"), look.rate("sessions_refused_total")
    figures: list[tuple[str, str, bool]] = [
        (
            "sessions",
            f"{look.by('sessions', 'state').get('open', 0):g} of {look.sum('sessions_limit'):g}",
            False,
        ),
        ("refused", f"{refused:g}", lately > 0),
        ("decisions", f"{look.rate('ticks_total'):.1f}/s", False),
        ("failed", f"{failed:.1f}/s", failed > 0),
        ("p50", _seconds(look.quantile("tick_latency_seconds", 0.5)), False),
        ("p95", _seconds(look.quantile("tick_latency_seconds", 0.95)), False),
        ("reuse", f"{look.rate('cached_tokens_total') / prompt:.1%}" if prompt else "-", False),
        (f"{waits} waiting", f"{look.sum(f'{waits}_waiting'):g}", False),
        ("store p95", _seconds(look.quantile("store_write_seconds", 0.95)), False),
        ("memory", f"{look.sum('process_resident_memory_bytes') / 2**20:.0f} MiB", False),
    ]
    yield Text.assemble(
        (f"vigil {version}", "bold"), f" at {server}, ", (state, "" if look.sum("engine_ready") else BAD)
    )
    yield _Packed(
        tuple(
            Text.assemble((f"{name} ", "dim"), (value, BAD if bad else "bold"))
            for name, value, bad in figures
        )
    )


@dataclass(frozen=True)
class _Packed:
    """Pieces side by side, as many as a line holds; a line breaks between them, never within one."""

    pieces: tuple[Text, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text()
        for piece in self.pieces:
            if line and line.cell_len + len(_GAP) + piece.cell_len > options.max_width:
                yield line
                line = Text()
            line = line.append(_GAP).append_text(piece) if line else piece.copy()
        yield line


_GAP = "   "


@dataclass(frozen=True)
class _Column:
    """A figure of engines by its name; ``bad``: from where on it is shown so."""

    title: str
    name: str
    form: str
    bad: Callable[[float], bool] = lambda _: False


_COLUMNS = (
    _Column("late", "lateness_periods", ".2f", lambda late: late > LATE),
    _Column("pace", "real_time_factor", ".2f", lambda factor: factor > 1),
    _Column("kept", "reuse_ratio", ".0%", lambda kept: kept < KEPT),
    _Column("KV", "kv_usage_ratio", ".0%"),
    _Column("run", "requests_running", "g"),
    _Column("wait", "requests_waiting", "g"),
)
"""Those that no engine tells are left out."""


def _engines(look: Look, up: Mapping[str, float]) -> Table:
    told = [(column, by) for column in _COLUMNS if (by := look.by(f"engine_{column.name}", "engine"))]
    sessions, limits = look.by("engine_sessions", "engine"), look.by("engine_sessions_limit", "engine")
    draining = look.by("engine_draining", "engine")
    table = _table("engine", "state", "sessions", "p95", *(column.title for column, _ in told))

    def well(engine: str) -> tuple[bool, bool, str]:
        wrong = any(column.bad(by[engine]) for column, by in told if engine in by)
        return bool(up[engine]), not wrong, engine

    shown = sorted(up, key=well)[:ENGINES]
    for engine in shown:
        alive, p95 = up[engine], look.quantile("tick_latency_seconds", 0.95, engine=engine)
        most = limits.get(engine)
        held = f"{sessions.get(engine, 0):g}" + (f"/{most:g}" if most else "")
        state = "down" if not alive else "draining" if draining.get(engine) else "up"
        cells = [
            Text(format(by[engine], column.form), BAD if column.bad(by[engine]) else "")
            if engine in by
            else Text("-")
            for column, by in told
        ]
        table.add_row(Text(engine), Text(state, "" if alive else BAD), held, _seconds(p95), *cells)
    _and_more(table, up, shown)
    return table


def _tenants(look: Look, ticks: Mapping[str, float]) -> Table:
    table = _table("tenant", "decisions/s", "failed/s", "latency", "prompt tokens/s", "reuse")
    rates = {tenant: [look.rate(f"tenant_{name}", tenant=tenant) for name in _COUNTED] for tenant in ticks}
    shown = sorted(rates, key=lambda each: -rates[each][0])[:TENANTS]
    for tenant in shown:
        asked, failed, prompt, cached, timed, seconds = rates[tenant]
        reuse = f"{cached / prompt:.1%}" if prompt else "-"
        mean = _seconds(seconds / timed if timed else None)
        table.add_row(Text(tenant), f"{asked:.1f}", f"{failed:.1f}", mean, f"{prompt:.0f}", reuse)
    _and_more(table, rates, shown)
    return table


_COUNTED = (
    *("ticks_total", "tick_failures_total", "prompt_tokens_total", "cached_tokens_total"),
    *("tick_latency_seconds_count", "tick_latency_seconds_sum"),
)


def _table(first: str, *others: str) -> Table:
    """Names to the left, in several lines where they are long, so that figures to the right are whole."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    table.add_column(first, overflow="fold", min_width=NAME)
    for title in others:
        table.add_column(title, justify="left" if title == "state" else "right", no_wrap=True)
    return table


def _and_more(table: Table, there: Collection[str], shown: Collection[str]) -> None:
    if len(there) > len(shown):
        table.caption = f"and {len(there) - len(shown)} more"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _looks(http: httpx.Client, every: float) -> Iterator[Look]:
    """Each after ``every`` seconds."""
    before, at = _scrape(http), time.monotonic()
    while True:
        time.sleep(every)
        now, then = _scrape(http), time.monotonic()
        yield Look(now, before, then - at)
        before, at = now, then


def _scrape(http: httpx.Client) -> Scrape:
    try:
        status, text = answered_now(http, "GET", "/metrics", within_s=TIMEOUT_S, most=MOST)
    except (httpx.HTTPError, httpx.InvalidURL) as away:
        raise Away(f"can't reach {http.base_url}: {str(away) or type(away).__name__}") from away
    if status != 200:
        why = "; is the key right?" if status in (401, 403) else ""
        raise TopError(f"{http.base_url} answered with status {status}{why}")
    return read(text.decode("utf-8", "replace"))
