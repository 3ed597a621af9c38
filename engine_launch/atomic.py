"""Folders that appear whole: built aside under a lock, then renamed."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str, str], None]
"""Told of each step: (what is being done, newest detail). Drawn by the command line, ignored elsewhere."""


def silent(stage: str, detail: str) -> None:
    """The progress callback of callers that show nothing."""


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` across processes; ``on_wait`` is called when another one has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_once(target: Path, build: Callable[[Path], None], progress: Progress, stage: str) -> Path:
    """``target``, built by ``build(folder)`` if it isn't there. Two builders: one builds, the other waits.

    A crash leaves a folder beside the target, removed by the next builder, and never half a target.
    """
    if target.is_dir():
        return target
    with locked(target.with_name(target.name + ".lock"), lambda: progress(stage, "another process is at it")):
        if target.is_dir():
            return target
        aside = target.with_name(f"{target.name}.building")
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            build(aside)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        aside.replace(target)
    return target
