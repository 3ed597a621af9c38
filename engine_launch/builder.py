"""Run a script that writes a checkpoint, with the engine's own interpreter."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from engine_launch.errors import CheckpointError

BUILD_DEADLINE_S = 900.0  # half a minute on a quiet machine


def run_builder(what: str, command: Sequence[str], env: Mapping[str, str]) -> None:
    """:param what: is built, for messages. Raises :class:`CheckpointError`."""
    try:
        done = subprocess.run(
            command, env=dict(env), capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CheckpointError(f"{what} was not built within {BUILD_DEADLINE_S:.0f} s") from None
    if done.returncode:
        raise CheckpointError(f"{what} could not be built", done.stderr.strip()[-2000:])
