"""Frame bytes in a folder: written whole or not at all, two levels of folders, names without meaning."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from memory.store.errors import StoreError

Result = TypeVar("Result")

_NAME = re.compile(r"[0-9a-f]{64}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class FrameFiles:
    """``folder/ab/cd/abcd...``: one file a frame.

    :param workers: threads for what is not done in the caller's
    :param timeout_s: deadline of one piece of work
    """

    def __init__(self, folder: Path, *, workers: int = 4, timeout_s: float = 20.0) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="store-frames")
        # Random, not a process id: orchestrators in containers share this folder and their ids.
        self._mark = secrets.token_hex(8)
        self._numbers = count()
        self._closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the frames folder can't be made: {error}") from error

    @staticmethod
    def name(tenant: str, uuid: str) -> str:
        """The file name of a tenant's frame: a hash, so no identity can point outside the folder."""
        return hashlib.sha256(f"{len(tenant)}:{tenant}{uuid}".encode()).hexdigest()

    def write(self, name: str, data: bytes) -> None:
        """Return once the file is durable; a file that is there already is left as it is. In the caller's
        thread, which it blocks.

        :raises StoreError: the disk refused
        """
        if self._closed:
            raise StoreError("the store is closed")
        with _told():
            self._write(name, data)

    async def write_again(self, name: str, data: bytes) -> None:
        """The same in a thread of its own.

        :raises StoreError: the disk refused or was too slow
        """
        await self._run(self._write, name, data)

    def exists(self, name: str) -> bool:
        return os.access(f"{self._folder}/{name[:2]}/{name[2:4]}/{name}", os.F_OK)

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
        with _told():
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._pool, partial(work, *arguments))

    def _path(self, name: str) -> Path:
        return Path(f"{self._folder}/{name[:2]}/{name[2:4]}/{name}")

    def _write(self, name: str, data: bytes) -> None:
        """Each call of the system lets go of the interpreter, and has to wait for it afterwards while the
        event loop is busy: there are as few of them as can be."""
        if self.exists(name):
            return
        path = self._path(name)
        temporary = Path(f"{path}.{self._mark}{next(self._numbers):x}.tmp")
        try:
            file = os.open(temporary, _NEW, 0o600)
        except FileNotFoundError:
            self._make_folders(name)
            file = os.open(temporary, _NEW, 0o600)
        try:
            try:
                _write_all(file, data)
                os.fsync(file)
            finally:
                os.close(file)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _make_folders(self, name: str) -> None:
        folder = self._path(name).parent
        for new in (folder.parent, folder):
            if not new.exists():
                new.mkdir(exist_ok=True)
                _sync_folder(new.parent)

    def _scan(self, folder: int, older_than_ms: int) -> tuple[list[str], list[Path]]:
        frames: list[str] = []
        left_over: list[Path] = []
        for path in _old_files(self._folder / f"{folder:02x}", older_than_ms):
            if _NAME.fullmatch(path.name):
                frames.append(path.name)
            else:
                left_over.append(path)
        return frames, left_over


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise StoreError(f"the frames folder did not do it: {reason}") from error


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


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
