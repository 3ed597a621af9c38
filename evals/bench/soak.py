"""Many sessions over loopback for a long time: does anything grow, leak or end, and what does a tick cost.

``python -m evals.bench.soak --sessions 200 --seconds 600 --out results.json``

Three processes: a scripted engine that answers at once, ``vigil serve``, and the load. A tick's overhead is
what lies between its being due and its request at the engine (``in``), and between the last words leaving
the engine and the event that ends the response (``out_done``; ``out_words``: the event with those words).
Clients that ask for words when their frame has long been decoded measure it; the generator's own p99 lag is
taken off. Watching sessions tell the way in with decoding in it (``frame_to_request``).
``cpu_ms_per_tick`` is the processor time of the service, all its threads, over the decisions that the engine
was asked for: nearly the same on a busy machine. ``core_wait_share`` is how much of the time the service's
event loop was ready to run and the machine ran something else on its cores, the engine and the generator
included: no work of the service's own, and in the overhead all the same (Linux alone tells it).
``bare_work_ms``, taken before the load begins, is what the machine makes of a piece of work that nothing is
in the way of: the overhead of a tick has several such pieces in it.
Prints one JSON object and ends with 1 if a check failed; missing the target is told and fails nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

from evals.bench.machine import bare_work_ms, machine
from evals.bench.stand import Stand, standing

SAMPLE_S = 1.0
TARGET_MS = 10.0
MAY_GROW = 1.05
MAY_GROW_MB = 12.0
"""From the end of the warm-up to the end: what the allocator may still take in blocks."""

LIMITS = (
    *("--limits-sessions", "1000", "--auth-quota-handshakes-per-minute", "100000"),
    *("--limits-idle-s", "60", "--realtime-grace-s", "20"),
    # So that a conversation is as long as it may be by the end of the warm-up.
    *("--realtime-history-items", "64"),
    # A voice is a program of its own that takes the service's cores; what it costs has a bench of its own.
    *("--voice-bridge", "none"),
)


async def soak(
    folder: Path, sessions: int, seconds: float, warm_s: float, *, profile: bool = False
) -> dict[str, Any]:
    """:param folder: for the service's data; :param warm_s: after which memory has to be flat
    :param profile: tell where the service's processor time goes after the warm-up
    """
    bare = bare_work_ms()
    async with standing(folder, LIMITS, profile=profile) as stand:
        generator = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evals.bench.soak_load", "--url", stand.route),
            *("--sessions", str(sessions), "--seconds", str(seconds), "--warm", str(warm_s)),
            stdout=PIPE,
        )
        watched = {"server": stand.server.pid, "engine": stand.engine.pid, "generator": generator.pid}
        watch = asyncio.create_task(_watch(watched))
        if profile:
            asyncio.get_running_loop().call_later(warm_s, stand.server.send_signal, signal.SIGUSR1)
        before_s, waited_s = _processor_s(stand.server.pid), _core_wait_s(stand.server.pid)
        begun = time.monotonic()
        told, _ = await generator.communicate()
        spent_s = _processor_s(stand.server.pid) - before_s
        core_wait_s = _core_wait_s(stand.server.pid) - waited_s
        lasted_s = time.monotonic() - begun
        watch.cancel()
        samples = (await asyncio.gather(watch, return_exceptions=True))[0]
        left = await _left(stand)
        log = stand.log.read_text(errors="replace")
    if not told or isinstance(samples, BaseException):
        raise SystemExit("the load generator told nothing")
    per_tick_s = spent_s / max(1, stand.ended["engine"]["decisions"])
    profiled = {"profile": stand.ended["profile"]} if profile else {}
    return _judged(orjson.loads(told), samples, left, log, stand, warm_s) | {
        "cpu_ms_per_tick": round(per_tick_s * 1000, 3),
        "cores_per_100_sessions_at_1_hz": round(per_tick_s * 100, 3),
        "core_wait_share": round(core_wait_s / lasted_s, 4),
        "bare_work_ms": bare,
        **profiled,
        "sessions": sessions,
        "seconds": seconds,
        "warm_s": warm_s,
    }


def _processor_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _core_wait_s(pid: int) -> float:
    """How long the process's main thread has waited for a core in all; 0 where the system does not tell."""
    try:
        told = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text()
    except OSError:
        return 0.0
    return int(told.split()[1]) / 1e9


async def _watch(pids: dict[str, int]) -> dict[str, list[tuple[float, float, float]]]:
    """Seconds, resident MB and CPU share of each process; runs until it is cancelled."""
    processes = {name: psutil.Process(pid) for name, pid in pids.items()}
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in pids}
    begin = time.monotonic()
    for process in processes.values():
        process.cpu_percent()
    try:
        while True:
            await asyncio.sleep(SAMPLE_S)
            for name, process in processes.items():
                try:
                    share, resident = process.cpu_percent() / 100, process.memory_info().rss / 2**20
                except psutil.NoSuchProcess:
                    continue
                samples[name].append((time.monotonic() - begin, resident, share))
    except asyncio.CancelledError:
        return samples


async def _left(stand: Stand) -> dict[str, int]:
    """What the service still holds once every client has closed its session."""
    async with httpx.AsyncClient(base_url=stand.url, trust_env=False) as client:
        for _ in range(50):
            sessions = (await client.get("/health")).json()["sessions"]
            if not sessions:
                break
            await asyncio.sleep(0.2)
        lines = (await client.get("/metrics")).text.splitlines()
    held = {"sessions": int(sessions)}
    for name in ("sockets", "mailbox_commands", "pending_input_bytes", "outbox_events"):
        held[name] = round(sum(float(x.rpartition(" ")[2]) for x in lines if x.startswith(f"vigil_{name} ")))
    return held


def _judged(
    told: dict[str, Any],
    samples: dict[str, list[tuple[float, float, float]]],
    left: dict[str, int],
    log: str,
    stand: Stand,
    warm_s: float,
) -> dict[str, Any]:
    memory = [(at, resident) for at, resident, _ in samples["server"] if at >= warm_s]
    tenth = max(1, len(memory) // 10)
    warm = sum(resident for _, resident in memory[:tenth]) / tenth
    end = sum(resident for _, resident in memory[-tenth:]) / tenth
    fallen = log.find("Traceback")
    tick, own = told["tick_ms"], told["generator_lag_ms"]
    overhead = round(tick["p99"] - own["p99"], 3) if tick["count"] else None
    checks = {
        "no_fault": not told["faults"],
        "no_leak": not told["counts"].get("leaks"),
        "memory_flat": end <= warm * MAY_GROW + MAY_GROW_MB,
        "nothing_left": not any(left.values()),
        "no_traceback": fallen < 0,
        "ended_in_order": stand.ended.get("server_code") == 0,
    }
    return {
        "machine": machine(),
        "overhead_p99_ms": overhead,
        "target_ms": TARGET_MS,
        "target_met": overhead is not None and overhead < TARGET_MS,
        "checks": checks,
        **told,
        "left": left,
        "traceback": None if fallen < 0 else log[max(0, fallen - 500) : fallen + 4000],
        "server_memory_mb": {
            "warm": round(warm, 1),
            "end": round(end, 1),
            "most": round(max(resident for _, resident, _ in samples["server"]), 1),
            "each_tenth": [round(resident, 1) for _, resident in memory[::tenth]],
        },
        "cpu_share": {
            name: round(sum(share for _, _, share in each) / max(1, len(each)), 3)
            for name, each in samples.items()
        },
        "engine_lag_ms": stand.ended.get("engine", {}).get("lag_ms"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--warm", type=float, help="default: a third of the time")
    parser.add_argument("--profile", action="store_true", help="tell where the service's processor time goes")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    warm_s = options.warm if options.warm is not None else options.seconds / 3
    with tempfile.TemporaryDirectory(prefix="vigil-soak-") as folder:
        result = asyncio.run(
            soak(Path(folder), options.sessions, options.seconds, warm_s, profile=options.profile)
        )
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(text + "\n")
    if options.out is not None:
        options.out.write_text(text + "\n")
    if not all(result["checks"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
