"""A module that is run under the profiler ends as it would alone, and is told of by processor time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

BUSY = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 1); sum(i * i for i in range(4_000_000))"


def _run(told: Path, *module: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evals.bench.profiled", str(told), *module]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_time_is_told_by_thread_room_and_function(tmp_path: Path) -> None:
    told = tmp_path / "profile.json"
    ran = _run(told, "timeit", "-n", "1", "-r", "1", BUSY)
    assert ran.returncode == 0, ran.stderr
    assert "1 loop" in ran.stdout  # its own arguments, and its own output
    profile = orjson.loads(told.read_bytes())
    assert profile["samples"] > 0
    assert profile["threads_s"]["MainThread"] > 0
    assert sum(profile["rooms"].values()) <= 1.001
    assert 0.9 < profile["within"]["bench/profiled.py:main"] <= 1.001
    assert any(name.endswith("<genexpr>") for name in profile["itself"])


def test_a_module_that_fails_fails_the_same(tmp_path: Path) -> None:
    told = tmp_path / "profile.json"
    ran = _run(told, "timeit", "1 / 0")
    assert ran.returncode != 0
    assert "ZeroDivisionError" in ran.stderr
    assert told.exists()
