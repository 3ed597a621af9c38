"""Malformed and reordered events against ``vigil serve`` over real sockets, and whether it grows by them.

``python -m evals.bench.fuzz --events 20000``

Prints one JSON object: errors by code, what must not have happened (``findings``), and the service's memory
after each tenth. Ends with 1 if there are findings, a traceback in the log, or growth.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import psutil

from evals.bench.machine import machine
from evals.bench.mutants import Mutants
from evals.bench.prober import NO_PICTURE, Prober
from evals.bench.stand import standing
from tests.fakes.pictures import jpeg, png

ROUNDS = 10
MAY_GROW_MB = 15.0
"""After the first two rounds, which fill caches and pools."""

PICTURES = [*(jpeg(number) for number in range(6)), png(6), NO_PICTURE]


async def fuzz(folder: Path, events: int, seed: int) -> dict[str, Any]:
    """A tenth of the events in each of ten sessions, one after the other."""
    errors: Counter[str] = Counter()
    findings: list[str] = []
    memory: list[float] = []
    sent = 0
    async with standing(folder, ("--auth-quota-events-per-second", "100000")) as stand:
        process = psutil.Process(stand.server.pid)
        for number in range(ROUNDS):
            mutants = Mutants(seed + number, PICTURES, audio=False)
            opening = {"include": ["vigil.tick"], "extra_body": {"auto_response": number % 2 == 0}}
            report = await Prober(stand.route, mutants, opening).run(events // ROUNDS)
            errors += report.errors
            findings += report.findings
            sent += report.sent
            memory.append(round(process.memory_info().rss / 2**20, 1))
        log = stand.log.read_text(errors="replace")
    return {
        "machine": machine(),
        "events": sent,
        "errors": dict(errors.most_common()),
        "findings": findings,
        "server_memory_mb": memory,
        "checks": {
            "no_finding": not findings,
            "no_traceback": "Traceback" not in log,
            "memory_flat": memory[-1] - memory[1] <= MAY_GROW_MB,
            "ended_in_order": stand.ended["server_code"] == 0,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # sockets are cut while they are written to
    with tempfile.TemporaryDirectory(prefix="vigil-fuzz-") as folder:
        result = asyncio.run(fuzz(Path(folder), options.events, options.seed))
    sys.stdout.write(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode() + "\n")
    if not all(result["checks"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
