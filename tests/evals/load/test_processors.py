"""Processor time by process: who is busy, and whether it is one thread of it."""

from __future__ import annotations

import os

from evals.load.processors import Spent, cores, spent


def test_cores_by_process_the_busiest_first() -> None:
    first = Spent(10.0, {1: ("engine", {1: 5.0, 2: 1.0}), 2: ("evals.load.generator", {7: 1.0})})
    last = Spent(
        20.0,
        {
            1: ("engine", {1: 14.0, 2: 2.0}),
            2: ("evals.load.generator", {7: 1.1}),
            3: ("engine", {9: 2.0, 10: 2.0}),
            4: ("idle", {11: 0.0}),
        },
    )
    told = cores(first, last)
    assert told == {
        "engine": {"cores": 1.0, "busiest_thread": 0.9},
        "engine #2": {"cores": 0.4, "busiest_thread": 0.2},
    }
    assert list(told) == ["engine", "engine #2"]
    assert cores(last, last) == {}


def test_this_process_is_seen() -> None:
    name, threads = spent().processes[os.getpid()]
    assert name and sum(threads.values()) > 0
