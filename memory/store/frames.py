"""A session's view of its tenant's frames."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from memory.store.errors import FrameTooLarge
from memory.store.files import FrameFiles
from memory.store.log import DurableLog, FrameWrite
from memory.store.transient import TransientFrames

UNRECORDED = 8
"""Frames of a session whose records may wait for the database while more are taken."""


class SessionFrames:
    """Puts frames under a session's name; reads any frame of its tenant.

    A frame put by several sessions is stored once and stays until the last of them is deleted, or until
    the newest ``expires_ms`` has passed.

    :param log: the session's, with which its frames are recorded
    :param frame_retention_ms: how long a frame is kept after it was last put; ``None``: with its session
    :param cache: frames kept in memory, under their file names
    """

    def __init__(
        self,
        log: DurableLog,
        tenant: str,
        *,
        files: FrameFiles,
        cache: TransientFrames,
        now_ms: Callable[[], int],
        frame_retention_ms: int | None,
    ) -> None:
        self._log = log
        self._tenant = tenant
        self._files = files
        self._cache = cache
        self._now_ms = now_ms
        self._frame_retention_ms = frame_retention_ms

    def write(self, uuid: str, data: bytes) -> None:
        """See ``FrameStore.write``. Raises ``StoreError``."""
        self._files.write(FrameFiles.name(self._tenant, uuid), data)

    async def put(self, uuid: str, data: bytes) -> None:
        """Take a frame that was written: its record is durable when the log is flushed the next time, in one
        transaction with the facts that are appended meanwhile. Waits where many frames have none yet. Raises
        ``StoreError``."""
        file = FrameFiles.name(self._tenant, uuid)
        with suppress(FrameTooLarge):
            await self._cache.put(file, data)
        keep = self._frame_retention_ms
        expires_ms = None if keep is None else self._now_ms() + keep
        self._log.attach(FrameWrite(self._log.session, self._tenant, uuid, file, data, expires_ms))
        if self._log.unrecorded > UNRECORDED:
            await self._log.flush()

    def get(self, uuid: str) -> bytes:
        """The bytes; raises ``KeyError`` when they were deleted or have expired, ``StoreError`` when the disk
        does not give them."""
        file = FrameFiles.name(self._tenant, uuid)
        try:
            return self._cache.get(file)
        except KeyError:
            return self._files.read(file)
