"""What the service and its engines say of a step, from their ``/metrics``, and this machine's processors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bridges.answers import answered
from bridges.engine import EngineError
from bridges.engine_metrics import EngineLoad, EngineMetrics
from evals.load.processors import Spent, cores, spent

LOOK_S = 1.0
TIMEOUT_S, MOST = 5.0, 32 * 2**20
"""For a scrape of the service, and bytes of it."""
QUIET_LOOK_S, QUIET_LOOKS = 0.5, 3
"""An engine that does nothing is looked at so often: between two requests it does nothing either."""
QUEUES = ("mailbox_commands", "pending_input_bytes", "frames_waiting", "outbox_events")
"""Of a service: what waits in it."""

DECIDED, PATHS = "engine_prompts_total", "path:"
"""Decisions by how their prompts went: a name of their own for each."""

Samples = dict[str, float]


def service_samples(text: str) -> Samples:
    """Vigil's own figures by name without prefix, added up over their labels. Other text gives none."""
    sums: Samples = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("vigil_"):
                    name = sample.name.removeprefix("vigil_")
                    sums[name] = sums.get(name, 0.0) + sample.value
                    if name == DECIDED:
                        sums[PATHS + sample.labels["path"]] = sample.value
    except ValueError:
        return {}
    return sums


@dataclass
class Readings:
    """First and last reading of a step, and the largest of those in between."""

    service: list[Samples] = field(default_factory=list)
    engines: list[list[EngineLoad]] = field(default_factory=list)
    processors: list[Spent] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """``service``, ``engine`` and ``processes``, each absent where it told nothing."""
        told: dict[str, Any] = {}
        known = [samples for samples in self.service if samples]
        if len(known) > 1:
            told["service"] = _service(known)
        loads = [each for each in self.engines if each]
        if len(loads) > 1:
            told["engine"] = _engine(loads)
        if len(self.processors) > 1:
            told["processes"] = cores(self.processors[0], self.processors[-1])
        return told


def grown(readings: Sequence[float]) -> float:
    """How much was counted between the first reading and the last. What falls was started anew, from zero."""
    return sum(now - before if now >= before else now for before, now in pairwise(readings))


def _service(known: Sequence[Samples]) -> dict[str, Any]:
    def grew(name: str) -> float:
        return grown([each.get(name, 0.0) for each in known])

    prompt = grew("prompt_tokens_total")
    decided = {name: grew(name) for each in known for name in each if name.startswith(PATHS)}
    asked = sum(decided.values())
    return {
        "ticks": int(grew("ticks_total")),
        "paths": {name.removeprefix(PATHS): int(number) for name, number in decided.items() if number},
        "prompt_tokens": round(prompt / asked) if asked else None,
        "tick_failures": int(grew("tick_failures_total")),
        "sessions_refused": int(grew("sessions_refused_total")),
        "reuse": round(grew("cached_tokens_total") / prompt, 4) if prompt else None,
        "most": {name: int(max(each.get(name, 0.0) for each in known)) for name in QUEUES},
    }


def _engine(loads: Sequence[Sequence[EngineLoad]]) -> dict[str, Any]:
    def most(name: str) -> float | None:
        values = [getattr(load, name) for each in loads for load in each]
        known = [value for value in values if value is not None]
        return max(known) if known else None

    def grew(name: str) -> int | None:
        told = [
            [value for load in of if (value := getattr(load, name)) is not None]
            for of in zip(*loads, strict=True)
        ]
        known = [round(grown(values)) for values in told if len(values) > 1]
        return sum(known) if known else None

    asked, found = grew("prefix_queries"), grew("prefix_hits")
    return {
        "reuse": round((found or 0) / asked, 4) if asked else None,
        "kv_usage": most("kv_usage"),
        "running": most("running"),
        "waiting": most("waiting"),
        "preemptions": grew("preemptions"),
    }


class Scraper:
    """Reads a service and engines while a step is measured.

    :param url: root of the service; one without figures is left alone
    :param engines: roots of the engines behind it
    """

    def __init__(self, url: str, engines: Sequence[str], api_key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else None
        self._url = url.rstrip("/") + "/metrics"
        self._http = httpx.AsyncClient(headers=headers, timeout=TIMEOUT_S, trust_env=False)
        self._engines = [EngineMetrics(each, timeout_s=TIMEOUT_S) for each in engines]

    async def until(self, ended: asyncio.Event) -> Readings:
        """One reading now, one at the end, and some in between."""
        readings = Readings()
        first = asyncio.create_task(asyncio.to_thread(spent))
        await self._read(readings)
        while not ended.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await ended.wait()
            except TimeoutError:
                pass
            await self._read(readings)
        readings.processors += [await first, await asyncio.to_thread(spent)]
        return readings

    async def quiet(self, patience_s: float) -> bool:
        """Wait until the engines have nothing to do. False: they still had after so many seconds."""
        if not self._engines:
            return True
        until = time.monotonic() + patience_s
        idle = 0
        while idle < QUIET_LOOKS:
            loads = await asyncio.gather(*(self._load(engine) for engine in self._engines))
            busy = any(load is not None and (load.running or load.waiting) for load in loads)
            idle = 0 if busy else idle + 1
            if busy and time.monotonic() > until:
                return False
            await asyncio.sleep(QUIET_LOOK_S)
        return True

    async def aclose(self) -> None:
        await self._http.aclose()
        await asyncio.gather(*(engine.aclose() for engine in self._engines))

    async def _read(self, readings: Readings) -> None:
        engines = asyncio.gather(*(self._load(engine) for engine in self._engines))
        readings.service.append(await self._service())
        readings.engines.append(await engines)

    async def _service(self) -> Samples:
        try:
            status, told = await answered(self._http, "GET", self._url, within_s=TIMEOUT_S, most=MOST)
        except httpx.HTTPError:
            return {}
        return service_samples(told.decode("utf-8", "replace")) if status == 200 else {}

    async def _load(self, engine: EngineMetrics) -> EngineLoad:
        try:
            return await engine.load()
        except EngineError:
            return EngineLoad()
