"""One run at a time in a folder, for as long as it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evals.runs.manifest import RunError
from orchestrator.folder_lock import FolderInUse, FolderLock


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Raises ``RunError``: another one is at work there, or nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder, alone=True)
    except FolderInUse:
        raise RunError(
            f"another run is at work in {folder}; wait for its end, or use another --out"
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def cannot_write(folder: Path, error: OSError) -> RunError:
    return RunError(f"can't write to {folder}: {error.strerror or error}")
