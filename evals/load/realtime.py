"""Sessions over a Vigil's WebSocket."""

from __future__ import annotations

import asyncio
from typing import Any

from evals.load.heads import head
from evals.load.job import Job
from evals.load.session import Hears, Lost, Refused
from orchestrator.client import ClientError, VigilClient
from orchestrator.wire.server import ErrorEvent, Tick

FREE = frozenset({"gated", "not_asked"})
"""Why a decision needs no engine. Any other without its tokens is one that the engine did not make."""


class RealtimeSession:
    """See ``LoadSession``. A lost connection is not resumed: it is counted."""

    def __init__(self, job: Job, number: int, hears: Hears) -> None:
        session: dict[str, Any] = {"include": ["vigil.tick"], "modalities": ["text"]}
        if job.head:
            session["instructions"] = head(job.mark, number, job.head)
        self._client = VigilClient(
            job.url, model=job.model, session=session, api_key=job.api_key, resume_s=0.0
        )
        self._hears = hears
        self._reader: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        try:
            await self._client.__aenter__()
        except ClientError as error:
            raise Refused(error.code, error.message) from error
        self._reader = asyncio.create_task(self._read())

    @property
    def busy(self) -> bool:
        return False

    @property
    def waits(self) -> bool:
        return True

    async def show(self, picture: bytes, media_ms: int, sound: bytes | None = None) -> None:
        try:
            await self._client.append(frames=[picture], frame_times_ms=[media_ms], pcm=sound)
        except (ClientError, TimeoutError) as error:
            raise Lost(getattr(error, "code", "write_timeout")) from error

    async def ask(self, query: str) -> None:
        try:
            await self._client.ask(query)
        except (ClientError, TimeoutError) as error:
            raise Lost(getattr(error, "code", "write_timeout")) from error

    async def close(self) -> None:
        self._closing = True
        await self._client.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        code = self._client.protocol.closed
        try:
            async for event in self._client.events():
                if isinstance(event, Tick):
                    if event.prompt_tokens is None and event.unit is None and event.reason not in FREE:
                        self._hears.faulted(event.reason or "no_answer")
                    else:
                        self._hears.decided(event.media_time_ms)
                elif isinstance(event, ErrorEvent):
                    self._hears.faulted(str(event.error.get("code")))
            code = self._client.protocol.closed
        except ClientError as error:
            code = error.code
        if not self._closing:
            self._hears.lost(code or "session_closed")
