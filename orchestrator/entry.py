"""The program ``vigil``: its commands, and what Ctrl-C means before they are even imported."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from orchestrator.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # ``Exit.INTERRUPTED``: nothing of ours is sure to be imported
