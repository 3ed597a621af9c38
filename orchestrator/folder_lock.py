"""Who uses a data folder: services with one database share it, and nobody deletes in it behind their back."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FolderInUse(Exception):
    """A service uses the folder."""


class FolderLock:
    """Held until ``release`` or the end of the process, however that comes about.

    :param alone: nobody else may hold it; raises ``FolderInUse`` at once where somebody does
    """

    def __init__(self, folder: Path, *, alone: bool) -> None:
        self._file = os.open(folder / "vigil.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise FolderInUse(f"a service uses {folder}") from None

    def release(self) -> None:
        os.close(self._file)
