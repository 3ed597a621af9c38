"""``make demo``: a real clip through a real engine, over the served API and with ``vigil replay``.

Starts an engine whose answers are a script (or takes the one that runs), ``vigil serve`` in front of it, and
replays the same clip twice, side by side: two sessions on one engine. Stops whatever it started, also when it
is interrupted.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from rich.console import Console
from rich.table import Table

from engine_launch import launch, supervisor
from engine_launch.errors import LaunchError
from engine_launch.profile import load_profile
from evals.clips import ClipMissing, clip, slowed
from evals.report.render import number, percent, size

PROFILE = "programmed-cpu"
OUT = Path("demo-out")
SLOWER = 25
"""The clip has 25 frames a second; this much slower it shows one a second: 250 ticks, two full chunks."""
QUERY = "Tell me what happens in front of the camera."
SEED = "7"
SERVING_S = 120.0
STOP_S = 20.0
_SERVING = re.compile(r"serving .* on (http://\S+)")

console = Console()


class DemoFailed(Exception):
    pass


def main() -> int:
    # What was started is stopped on a termination too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            demo(stack)
    except (DemoFailed, LaunchError, ClipMissing) as failed:
        Console(stderr=True).print(f"demo: {failed}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def demo(stack: ExitStack) -> None:
    OUT.mkdir(exist_ok=True)
    video = slowed(clip("bikes.mp4"), OUT / "bikes-slow.mp4", SLOWER)
    step(f"a clip of 250 frames, one a second: {video}")
    engine = stack.enter_context(running_engine(PROFILE))
    server = stack.enter_context(serving(engine))
    beside = OUT / "replay.log"
    step(f"the clip through the served API; beside it the same through vigil replay, told in {beside}")
    for earlier in (OUT / "served", OUT / "replay"):
        shutil.rmtree(earlier, ignore_errors=True)
    with beside.open("wb") as lines:
        replays(
            Popen(replay(video, OUT / "served", "--server", server)),
            Popen(
                replay(video, OUT / "replay", "--engine", engine, "--seed", SEED), stdout=lines, stderr=lines
            ),
        )
    step("what came of it")
    show({"served API": OUT / "served", "vigil replay": OUT / "replay"})
    console.print(
        "The model behind it says a script, whatever it sees. The prompts, the timing, the cache and the"
        " bytes are those of a real engine; make eval shows a model that sees.",
        style="yellow",
    )
    for name in ("served", "replay"):
        console.print(f"report: {(OUT / name / 'report.html').resolve()}", soft_wrap=True, highlight=False)


def step(text: str) -> None:
    console.print(f"\n== {text}", style="bold", soft_wrap=True, highlight=False)


@contextmanager
def running_engine(profile: str) -> Iterator[str]:
    """The URL of an engine on this machine; one that runs already is used and left running."""
    found = supervisor.find(profile)
    if found is not None and found.alive():
        step(f"{profile} runs already at {found.url}")
        yield found.url
        return
    step(f"starting {profile} (the first time its own environment is made: some minutes)")
    said = ""

    def tell(what: str, text: str) -> None:
        nonlocal said
        if what != said:
            console.print(f"   {what}: {text}", soft_wrap=True, highlight=False, markup=False)
        said = what

    started = launch.up(load_profile(profile), port=free_port(), progress=tell)
    try:
        yield started.url
    finally:
        step(f"stopping {profile}")
        supervisor.stop(started, STOP_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(engine: str) -> Iterator[str]:
    """The URL of a ``vigil serve`` process in front of the engine. Its log is kept in the demo's folder."""
    command = vigil(
        "serve", "--engine", engine, "--port", "0", "--data", str(OUT / "data"), "--no-auth-required"
    )
    command += ["--decision-seed", SEED]
    log = OUT / "serve.log"
    with log.open("wb") as lines:
        # In a session of its own, so that Ctrl-C reaches it through us alone, after the replay is done.
        process = Popen(command, stdout=lines, stderr=lines, start_new_session=True)
    try:
        yield wait_for_url(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S + 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_url(process: Popen[bytes], log: Path) -> str:
    """The address that the server says it listens on, once it listens."""
    step("starting vigil serve")
    for _ in range(round(SERVING_S / 0.1)):
        said = _SERVING.search(log.read_text(errors="replace"))
        if said is not None:
            console.print(f"   {said.group(0)}", soft_wrap=True, highlight=False, markup=False)
            return said.group(1)
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise DemoFailed(f"vigil serve did not start; the end of {log}:\n{tail}")


def replay(video: Path, out: Path, *how: str) -> list[str]:
    return vigil("replay", str(video), "--pace", "fast", "--query", QUERY, "--out", str(out), *how)


def replays(*processes: Popen[bytes]) -> None:
    """Wait for both to end well."""
    try:
        codes = [process.wait() for process in processes]
    except KeyboardInterrupt:
        # A terminal has told them already, and a second time does no harm: let them write their files.
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(STOP_S)
        raise
    if 130 in codes:
        raise KeyboardInterrupt
    if any(codes):
        raise DemoFailed(f"vigil replay ended with exit codes {codes}; see {OUT / 'replay.log'} too")


def vigil(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator.cli", *arguments]


def show(runs: dict[str, Path]) -> None:
    """The two runs side by side."""
    table = Table("", *runs)
    summaries: list[dict[str, Any]] = [
        json.loads((out / "summary.json").read_text()) for out in runs.values()
    ]
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "ticks": lambda s: number(s["ticks"]),
        "responses": lambda s: number(s["actions"].get("response", 0)),
        "delegated": lambda s: number(s["actions"].get("delegate", 0)),
        "repeats held back": lambda s: number(s["reasons"].get("deduplicated", 0)),
        "windows": lambda s: number(len(s["windows"])),
        "prompt tokens reused": lambda s: percent(s["reuse_ratio"]),
        "reuse as promised, of ticks within windows": lambda s: number(s["audit"]["kept_percent"], "%", 1),
        "latency, median": lambda s: number(s["latency_ms"]["p50"], "ms"),
        "latency, 95 % within": lambda s: number(s["latency_ms"]["p95"], "ms"),
        "request body, median": lambda s: size(s["body_bytes"]["p50"]),
    }
    for label, figure in rows.items():
        table.add_row(label, *(figure(summary) for summary in summaries))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
