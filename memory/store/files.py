"""Frame bytes in a folder: written whole or not at all, two levels of folders, names without meaning."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from memory.store.errors import StoreError

Result = TypeVar("Result")

_NAME = re.compile(r"[0-9a-f]{64}")


class FrameFiles:
    """``folder/ab/cd/abcd...``: one file a frame.

    :param workers: threads; each caller awaits its own work
    :param timeout_s: deadline of one piece of work
    """

    def __init__(self, folder: Path, *, workers: int = 4, timeout_s: float = 20.0) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="store-frames")
        self._closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the frames folder can't be made: {error}") from error

    @staticmethod
    def name(tenant: str, uuid: str) -> str:
        """The file name of a tenant's frame: a hash, so no identity can point outside the folder."""
        return hashlib.sha256(f"{len(tenant)}:{tenant}{uuid}".encode()).hexdigest()

    async def write(self, name: str, data: bytes) -> None:
        """Return once the file is durable; a file that is there already is left as it is.

        :raises StoreError: the disk refused or was too slow
        """
        await self._run(self._write, name, data)

    def exists(self, name: str) -> bool:
        return self._path(name).exists()

    def read(self, name: str) -> bytes:
        """The bytes; raises ``KeyError`` when there is no such file, ``StoreError`` when it can't be read."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None
        except OSError as error:
            raise StoreError(f"a frame can't be read: {error.strerror}") from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, in the caller's thread; those that are not there are no error."""
        _unlink([self._path(name) for name in names])

    async def scan(self, folder: int, older_than_ms: int) -> tuple[list[str], list[Path]]:
        """Frames and left-over temporary files last written before ``older_than_ms`` (Unix time).

        :param folder: which of the 256 first-level folders
        """
        return await self._run(self._scan, folder, older_than_ms)

    async def remove_left_over(self, paths: list[Path]) -> int:
        """Remove temporary files that ``scan`` found; returns how many."""
        await self._run(_unlink, paths)
        return len(paths)

    async def close(self) -> None:
        """Finish what runs; nothing starts afterwards."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)

    async def _run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        if self._closed:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._pool, partial(work, *arguments))
        except (OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise StoreError(f"the frames folder did not do it: {reason}") from error

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:4] / name

    def _write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if path.exists():
            return
        folder = path.parent
        for new in (folder.parent, folder):
            if not new.exists():
                new.mkdir(exist_ok=True)
                _sync_folder(new.parent)
        # Random, not a process id: orchestrators in containers share this folder and their ids.
        temporary = folder / f"{name}.{secrets.token_hex(8)}.tmp"
        try:
            with open(temporary, "xb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(folder)

    def _scan(self, folder: int, older_than_ms: int) -> tuple[list[str], list[Path]]:
        frames: list[str] = []
        left_over: list[Path] = []
        for path in _old_files(self._folder / f"{folder:02x}", older_than_ms):
            if _NAME.fullmatch(path.name):
                frames.append(path.name)
            else:
                left_over.append(path)
        return frames, left_over


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _old_files(folder: Path, older_than_ms: int) -> Iterator[Path]:
    for path in folder.glob("*/*"):
        try:
            if path.stat().st_mtime_ns // 1_000_000 < older_than_ms:
                yield path
        except FileNotFoundError:
            continue


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
