"""A session's view of its tenant's frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from memory.store.errors import FrameTooLarge, SessionGone
from memory.store.files import FrameFiles
from memory.store.retention import Retention
from memory.store.transient import TransientFrames
from memory.store.writer import FrameWrite, GroupWriter


class SessionFrames:
    """Puts frames under a session's name; reads any frame of its tenant.

    A frame put by several sessions is stored once and stays until the last of them is deleted, or until
    the newest ``expires_ms`` has passed.

    :param frame_retention_ms: how long a frame is kept after it was last put; ``None``: with its session
    :param cache: frames kept in memory, under their file names
    :param fence: see ``DurableLog``
    """

    def __init__(
        self,
        session: str,
        tenant: str,
        *,
        files: FrameFiles,
        writer: GroupWriter,
        retention: Retention,
        cache: TransientFrames,
        now_ms: Callable[[], int],
        frame_retention_ms: int | None,
        fence: int | None = None,
    ) -> None:
        self._session = session
        self._tenant = tenant
        self._files = files
        self._writer = writer
        self._retention = retention
        self._cache = cache
        self._now_ms = now_ms
        self._frame_retention_ms = frame_retention_ms
        self._fence = fence

    async def put(self, uuid: str, data: bytes) -> None:
        """Return once the frame and its record are durable. Raises ``StoreError``."""
        file = FrameFiles.name(self._tenant, uuid)
        await self._files.write(file, data)
        with suppress(FrameTooLarge):
            await self._cache.put(file, data)
        keep = self._frame_retention_ms
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await self._writer.record(
                FrameWrite(
                    session=self._session,
                    tenant=self._tenant,
                    uuid=uuid,
                    file=file,
                    size=len(data),
                    expires_ms=None if keep is None else self._now_ms() + keep,
                    done=done,
                    fence=self._fence,
                )
            )
        except SessionGone:
            await self._retention.remove_unrecorded([file])
            raise
        # A deletion that ran between the two steps may have taken the file; now the record protects it.
        if not self._files.exists(file):
            await self._files.write(file, data)

    def get(self, uuid: str) -> bytes:
        """The bytes; raises ``KeyError`` when they were deleted or have expired, ``StoreError`` when the disk
        does not give them."""
        file = FrameFiles.name(self._tenant, uuid)
        try:
            return self._cache.get(file)
        except KeyError:
            return self._files.read(file)
