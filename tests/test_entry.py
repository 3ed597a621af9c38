"""The program itself: Ctrl-C at any moment ends it quietly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
PROGRAM = """
import os, signal, sys
module = sys.argv.pop(1)
# As at a terminal, also where a shell began the tests with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from orchestrator.entry import main
main()
"""


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``vigil``, interrupted as it begins to import ``module``."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, module, *arguments],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=150,
    )


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("typer", ("version",)),
        ("orchestrator.settings", ("version",)),
        ("orchestrator.talk", ("talk",)),
        ("orchestrator.app", ("serve", "--no-auth-required", "--engine", "http://127.0.0.1:9")),
        ("evals.replay.command", ("replay", "clip.mp4")),
        ("av", ("replay", "clip.mp4", "--engine", "http://127.0.0.1:9")),
        ("engine_launch.cli", ("engine", "list")),
        ("evals.load.command", ("load",)),
    ],
)
def test_ctrl_c_during_imports_is_quiet(module: str, arguments: tuple[str, ...]) -> None:
    done = run(module, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_without_it_the_program_runs() -> None:
    done = run("nothing.such", "version")
    assert done.returncode == 0 and done.stdout.strip()
