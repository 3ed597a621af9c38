"""``make eval``: a small set of scenes through the CPU engine, scored, audited, done again, shown on a page.

The commands are those that anyone would type; only the engine is held for all of them. Stops whatever it
started, also when it is interrupted, and goes on where it was when it is started again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from engine_launch.errors import LaunchError
from evals.demo import running_engine, step, vigil

PROFILE = "standin-cpu"
OUT = Path("eval-out")
SET = "small"
STREAMS = "2"
AUDITED = "20"
"""Wrong decisions that are asked again cold; each costs a whole prompt without a cache."""

console = Console()


def main() -> int:
    # What was started is stopped on a termination too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            return suite(stack)
    except LaunchError as failed:
        Console(stderr=True).print(f"eval: {failed}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130


def suite(stack: ExitStack) -> int:
    """The first exit code that tells of a fault of ours; how good the model is makes no difference to it."""
    scenes, run = OUT / "scenes", OUT / "run"
    step(f"scenes, the same on every machine: {scenes}")
    if not (scenes / "clips.jsonl").exists() and (made := tell("eval", "scenes", str(scenes), "--set", SET)):
        return made
    stack.enter_context(running_engine(PROFILE))
    step("every scene through the session core")
    # By its profile's name, which says what the model is to be told; the engine that runs is found by it.
    watch = ("eval", "run", str(scenes), "--engine", PROFILE, "--out", str(run), "--streams", STREAMS)
    if watched := tell(*watch):
        return watched
    step("scored")
    tell("eval", "score", str(run))
    step(f"wrong decisions asked again cold, {AUDITED} of them at most")
    audited = tell("eval", "audit", str(run), "--engine", PROFILE, "--limit", AUDITED)
    step("done again from its record, without the engine")
    repeated = tell("eval", "rerun", "--from", str(run))
    tell("eval", "report", str(run))
    console.print(f"\nreport: {(run / 'report.html').resolve()}", soft_wrap=True, highlight=False)
    return audited or repeated


def tell(*arguments: str) -> int:
    """Run a command of ours as anyone would; its exit code."""
    return subprocess.run(vigil(*arguments), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
