"""Capacity: the largest number of sessions whose p95 stays within a bound, by steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Any

from rich.table import Table

from evals.load.search import Search
from evals.load.step import QUIET_S, Step

Try = Callable[[int], Awaitable[Step]]
"""Runs one step with so many sessions."""


async def capacities(
    run: Try, bounds: Sequence[float], most: int, *, first: int = 1, within: float = 0.05
) -> dict[str, Any]:
    """A search for each bound, the longest first; a number that was tried is not tried again.

    :param bounds: of the p95, in seconds
    :returns: ``capacity`` by bound, ``bounded`` (more was tried and not carried), ``steps`` by sessions
    """
    steps: dict[int, Step] = {}
    told: dict[str, Any] = {"capacity": {}, "bounded": {}}
    for bound in sorted(bounds, reverse=True):
        search = Search(most, first=first, within=within)
        for tried in sorted(steps):
            search.tell(tried, steps[tried].carried(bound))
        while (sessions := search.next()) is not None:
            if sessions not in steps:
                steps[sessions] = await run(sessions)
            search.tell(sessions, steps[sessions].carried(bound))
            if steps[sessions].told.refused:
                search.tell(steps[sessions].told.opened + 1, False)
        told["capacity"][f"{bound:g}"] = search.capacity
        told["bounded"][f"{bound:g}"] = search.bounded
    return told | {"steps": [steps[tried].plain(bounds) for tried in sorted(steps)]}


async def ladder(run: Try, bounds: Sequence[float], numbers: Sequence[int]) -> dict[str, Any]:
    """These numbers one after the other, until one is not carried within any bound; told as by
    ``capacities``."""
    steps: list[Step] = []
    for sessions in sorted(numbers):
        steps.append(await run(sessions))
        if not steps[-1].carried(max(bounds)):
            break
    told: dict[str, Any] = {"capacity": {}, "bounded": {}}
    for bound in sorted(bounds, reverse=True):
        carried = zip(steps, (each.carried(bound) for each in steps), strict=True)
        held = [each.sessions for each, good in takewhile(itemgetter(1), carried)]
        told["capacity"][f"{bound:g}"] = held[-1] if held else 0
        told["bounded"][f"{bound:g}"] = len(held) < len(steps)
    return told | {"steps": [each.plain(bounds) for each in steps]}


def table(steps: Sequence[dict[str, Any]]) -> Table:
    """Steps as ``Step.plain`` has them."""
    shown = Table(
        *("sessions", "p50 ms", "p95 ms", "p99 ms", "never", "refused", "lost", "lag ms"),
        *("reuse", "KV", "running", "waiting", "carried"),
    )
    for step in steps:
        engine, service = step.get("engine") or {}, step.get("service") or {}
        reuse = engine.get("reuse") if engine.get("reuse") is not None else service.get("reuse")
        within = [bound for bound, good in step["carried"].items() if good]
        shown.add_row(
            f"{step['sessions']}{'' if step['settled'] else ' ~'}",
            *(_cell(step[name]) for name in ("p50_ms", "p95_ms", "p99_ms")),
            _of(step["never"], step["frames"]),
            *(str(sum(step[name].values())) for name in ("refused", "lost")),
            f"{step['generator_lag_ms']}{' !' if step['doubtful'] else ''}",
            "-" if reuse is None else f"{reuse:.1%}",
            "-" if engine.get("kv_usage") is None else f"{engine['kv_usage']:.0%}",
            *(_cell(engine.get(name)) for name in ("running", "waiting")),
            ", ".join(f"{bound} s" for bound in within) or "no",
        )
    if not all(step["settled"] for step in steps):
        shown.caption = f"~: an engine was still busy {QUIET_S:g} s after the windows were filled"
    return shown


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if part else "0"
