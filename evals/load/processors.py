"""What the processors of this machine do during a step: cores by process, and its busiest thread's.

A program with one busy thread runs short of its core long before the machine runs short of processors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LEAST = 0.05
"""Cores below which a process is left out."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time so far. ``processes``: name and seconds of each thread, by process and thread."""

    at: float
    processes: Mapping[int, tuple[str, Mapping[int, float]]]


def spent() -> Spent:
    """Of all processes that can be seen. Nothing on a system without ``/proc``."""
    found: dict[int, tuple[str, Mapping[int, float]]] = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError):
            found[int(folder.name)] = (_name(folder), _threads(folder))
    return Spent(time.monotonic(), found)


def cores(first: Spent, last: Spent) -> dict[str, dict[str, float]]:
    """``cores`` and ``busiest_thread`` (in cores) by process, the busiest first."""
    seconds = last.at - first.at
    if seconds <= 0:
        return {}
    told: list[tuple[float, float, str]] = []
    for pid, (name, threads) in last.processes.items():
        before = first.processes.get(pid, ("", {}))[1]
        grew = [now - before.get(thread, 0.0) for thread, now in threads.items()]
        told.append((sum(grew) / seconds, max(grew, default=0.0) / seconds, name))
    shown: dict[str, dict[str, float]] = {}
    for whole, busiest, name in sorted(told, reverse=True):
        if whole >= LEAST:
            again = sum(each.partition(" #")[0] == name for each in shown)
            shown[f"{name} #{again + 1}" if again else name] = {
                "cores": round(whole, 2),
                "busiest_thread": round(busiest, 2),
            }
    return shown


def _name(folder: Path) -> str:
    """The module of ``python -m``, else the program as it calls itself.

    :raises ValueError: the kernel's own
    """
    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if not words[0]:
        raise ValueError(folder.name)
    if "-m" in words[:-1] and "python" in Path(words[0]).name:
        return words[words.index("-m") + 1]
    return Path(words[0].split(" ")[0]).name


def _threads(folder: Path) -> dict[int, float]:
    spent: dict[int, float] = {}
    for task in (folder / "task").iterdir():
        with suppress(OSError):
            nanoseconds = (task / "schedstat").read_text().split()[0]
            spent[int(task.name)] = int(nanoseconds) / 1e9
    return spent
