"""Names the machine and the engine that a bench ran on."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

PIECES, REST_S, ROUNDS = 300, 0.01, 20_000


def machine() -> dict[str, str | int | float]:
    """Processor, cores for this process, memory, load over the last minute, and the versions that matter."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "vigil": version("vigil"),
    }


def bare_work_ms() -> dict[str, float]:
    """What always the same piece of arithmetic takes here after a rest: ``p50``, ``p99``, ``max``.

    A machine that is shared takes its cores away in the middle of it. Where ``p99`` is several times ``p50``,
    nothing that runs here can have a shorter tail, whatever it does. Takes 4 s.
    """
    taken = []
    for _ in range(PIECES):
        time.sleep(REST_S)
        begun, value = time.perf_counter(), 0
        for each in range(ROUNDS):
            value += each * each % 7
        taken.append((time.perf_counter() - begun) * 1000)
    taken.sort()
    return {
        "p50": round(taken[PIECES // 2], 3),
        "p99": round(taken[PIECES * 99 // 100], 3),
        "max": round(taken[-1], 3),
    }


def engine_told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says of its engine: all but where its weights lie, and what prompts' ids look like."""
    told = {name: value for name, value in facts.items() if name != "weights"}
    return told | {"tokens": facts["tokens"] and facts["tokens"]["kind"]}


def _cpu_model() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or "unknown"
