"""Runs a module as ``python -m`` does, and tells where its processor time goes.

``python -m evals.bench.profiled [--wait] FILE MODULE ARGUMENTS...``

From the start on, or with ``--wait`` from SIGUSR1 on, once per ``EVERY_S`` of the process's time, the main
thread's stack is charged with the processor time that this thread has spent since: shares stay the same on a
busy machine, where a sampler by the clock would see whoever waits. At the end FILE gets one JSON object, see
``Samples.plain``.
"""

from __future__ import annotations

import re
import runpy
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

EVERY_S = 0.004
TOP = 40
ROOMS = ("orchestrator/", "memory/", "bridges/", "prompts/", "engine_launch/")
LOOP = "the event loop and libraries"
_ROOT = str(Path(__file__).parents[2]) + "/"
Spent = defaultdict[str, float]
_NUMBER = re.compile(r"[-_]\d+$")
_THREADS_EVERY = 64
"""Samples after which all threads are looked at: those that end before the process does are counted too."""


class Samples:
    """Seconds of processor time: of the main thread by function, of the others by their names."""

    def __init__(self) -> None:
        self._taken = 0
        self._spent_s = 0.0
        self._begun_at, self._at = time.monotonic(), 0.0
        self._threads: dict[int, tuple[str, float, float]] = {}
        self._within: Spent = defaultdict(float)
        self._itself: Spent = defaultdict(float)
        self._rooms: Spent = defaultdict(float)

    def begin(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """A handler of a signal too."""
        self._look_at_threads()
        self._begun_at = time.monotonic()
        self._at = time.thread_time()
        signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def _take(self, _number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent, self._at = now - self._at, now
        seen: set[str] = set()
        room = ""
        while frame is not None:
            code = frame.f_code
            name, own = _name(code.co_filename, _qualname(frame))
            if not seen:
                self._itself[name] += spent
            seen.add(name)
            room = room or own
            frame = frame.f_back
        for name in seen:
            self._within[name] += spent
        self._rooms[room or LOOP] += spent
        self._spent_s += spent
        self._taken += 1
        if self._taken % _THREADS_EVERY == 0:
            self._look_at_threads()

    def _look_at_threads(self) -> None:
        for each in threading.enumerate():
            if each.ident is None or each.native_id is None or not each.is_alive():
                continue
            spent = time.clock_gettime(time.pthread_getcpuclockid(each.ident))
            _, first, _ = self._threads.get(each.native_id, ("", spent if not self._taken else 0.0, 0.0))
            self._threads[each.native_id] = (_NUMBER.sub("", each.name), first, spent)

    def plain(self) -> dict[str, Any]:
        """``seconds`` by the clock; ``threads_s``: processor time by name; shares of the main thread's:
        ``rooms`` by the innermost function of ours, ``itself`` and ``within`` by function, without and with
        what it calls."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._look_at_threads()
        threads: Spent = defaultdict(float)
        for name, first, last in self._threads.values():
            threads[name] += last - first
        return {
            "samples": self._taken,
            "seconds": round(time.monotonic() - self._begun_at, 2),
            "threads_s": {name: round(spent, 2) for name, spent in _most(threads) if spent > 0.005},
            "rooms": self._shares(self._rooms),
            "itself": self._shares(self._itself),
            "within": self._shares(self._within),
        }

    def _shares(self, spent: Spent) -> dict[str, float]:
        whole = self._spent_s or 1.0
        return {name: round(each / whole, 4) for name, each in _most(spent)[:TOP]}


def _most(spent: Spent) -> list[tuple[str, float]]:
    return sorted(spent.items(), key=lambda each: -each[1])


def _qualname(frame: FrameType) -> str:
    """What ``dataclasses`` generates has no class in its name."""
    name = frame.f_code.co_qualname
    if not name.startswith("__create_fn__"):
        return name
    return f"{type(frame.f_locals.get('self')).__name__}.{frame.f_code.co_name}"


def _name(file: str, function: str) -> tuple[str, str]:
    """A function as it is shown, and its room if it is one of ours."""
    if file.startswith(_ROOT) and (path := file.removeprefix(_ROOT)).startswith(ROOMS):
        return f"{path}:{function}", path.rpartition("/")[0]
    return f"{'/'.join(file.rsplit('/', 2)[1:])}:{function}", ""


def main() -> None:
    wait = sys.argv[1] == "--wait"
    told, module, *arguments = sys.argv[2 if wait else 1 :]
    samples = Samples()
    if wait:
        signal.signal(signal.SIGUSR1, samples.begin)
    else:
        samples.begin()
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        Path(told).write_bytes(orjson.dumps(samples.plain()))


if __name__ == "__main__":
    main()
