"""Files and live streams that the service reads into a session: a camera needs no client of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bridges.frames import FrameBounds
from bridges.media import MediaError, MediaFrame, MediaOptions, MediaSource, open_media
from bridges.media_types import shown
from orchestrator.runtime.actor import Session
from orchestrator.session.backend import Clock, Ids
from orchestrator.session.commands import AppendInput
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    ResourceExhausted,
    Unsupported,
    VigilError,
)

STREAMS = frozenset({"rtsp", "rtsps", "rtmp", "rtmps", "srt"})
_KEPT = 16  # ended sources of a session that can still be asked about

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceRules:
    """:param hosts: from which streams may be read
    :param folder: below which files may be; without both there are no sources
    """

    hosts: frozenset[str] = frozenset()
    folder: Path | None = None

    def location(self, wanted: str) -> str:
        """What to open. Raises ``Forbidden`` (``source_not_allowed``) or ``InvalidRequest``."""
        parts = urlsplit(wanted)
        if parts.scheme:
            if parts.scheme not in STREAMS:
                known = ", ".join(sorted(STREAMS))
                raise InvalidRequest(f"a stream is one of {known}; a file has no scheme", param="source")
            if (parts.hostname or "") not in self.hosts:
                raise _not_allowed(f"streams from {parts.hostname} are not allowed (sources.allow_hosts)")
            return wanted
        if self.folder is None:
            raise _not_allowed("files are not allowed (sources.folder)")
        root = self.folder.resolve()
        path = (root / wanted).resolve()
        if not path.is_relative_to(root) or not path.exists():
            raise _not_allowed(f"there is no {wanted} in the folder of sources")
        return str(path)


class _Reading:
    """One source of one session."""

    def __init__(
        self, source_id: str, location: str, media: MediaSource, charge: Callable[[int], None]
    ) -> None:
        self.id = source_id
        self.location = location
        self.media = media
        self.charge = charge
        self.state = "playing"
        self.error: str | None = None
        self.frames = 0
        self.dropped = 0
        self.task: asyncio.Task[None]

    def public(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "session.source",
            "source": self.location,
            "state": self.state,
            "frames": self.frames,
            "dropped": self.dropped,
            "error": self.error,
        }


class Sources:
    """At most one source of a session plays at a time. It ends with its session.

    :param newest_ms: capture time of the newest frame of a session, on its media clock
    """

    def __init__(
        self,
        rules: SourceRules,
        bounds: FrameBounds,
        period_ms: int,
        clock: Clock,
        ids: Ids,
        newest_ms: Callable[[str], int | None],
    ) -> None:
        self._rules = rules
        self._options = MediaOptions(bounds, period_ms)
        self._clock = clock
        self._ids = ids
        self._newest_ms = newest_ms
        self._readings: dict[str, list[_Reading]] = {}

    async def add(self, session: Session, wanted: str, charge: Callable[[int], None]) -> dict[str, Any]:
        """Begin to show a source to the session. All methods raise ``VigilError``.

        :param charge: told of each frame's bytes; a frame that it refuses is dropped
        """
        readings = self._readings.setdefault(session.id, [])
        if any(reading.state == "playing" for reading in readings):
            raise Unsupported(
                "this session has a source already; a session watches one camera", code="unsupported_cameras"
            )
        location = self._rules.location(wanted)
        try:
            media = await asyncio.to_thread(open_media, location, self._options)
        except MediaError as error:
            raise InvalidRequest(error.message, code=error.code, param="source") from error
        reading = _Reading(self._ids("src"), shown(wanted), media, charge)
        readings.append(reading)
        del readings[:-_KEPT]
        reading.task = asyncio.create_task(self._run(session, reading), name=f"source:{session.id}")
        return reading.public()

    def of(self, session: Session) -> list[dict[str, Any]]:
        return [reading.public() for reading in self._readings.get(session.id, ())]

    async def remove(self, session: Session, source_id: str) -> None:
        """Stop a source, and forget it."""
        readings = self._readings.get(session.id, [])
        reading = next((r for r in readings if r.id == source_id), None)
        if reading is None:
            raise NotFound(f"this session has no source {source_id}", code="unknown_source")
        await _stopped(reading)
        readings.remove(reading)

    async def aclose(self) -> None:
        for readings in tuple(self._readings.values()):
            for reading in readings:
                await _stopped(reading)

    # --- one source ---------------------------------------------------------------------------------------

    async def _run(self, session: Session, reading: _Reading) -> None:
        ended = asyncio.create_task(session.closed.wait())
        playing = asyncio.create_task(self._play(session, reading))
        try:
            await asyncio.wait({ended, playing}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
            reading.state = "ended"
        except MediaError as error:
            reading.state, reading.error = "failed", error.code
        except VigilError as error:
            reading.state, reading.error = "ended", error.code
        except Exception:
            _log.exception("a source of session %s failed", session.id)
            reading.state, reading.error = "failed", "internal_error"
        finally:
            for task in (ended, playing):
                task.cancel()
            await asyncio.gather(ended, playing, return_exceptions=True)
            if not session.is_open:
                self._readings.pop(session.id, None)

    async def _play(self, session: Session, reading: _Reading) -> None:
        newest = self._newest_ms(session.id)
        origin_ms = 0 if newest is None else newest + self._options.period_ms
        live = reading.media.info.kind == "live"
        began = self._clock.now()
        async with aclosing(reading.media.play()) as frames:
            async for frame in frames:
                if not live and (early := began + frame.media_time_ms / 1000 - self._clock.now()) > 0:
                    await self._clock.sleep(early)
                await self._show(session, reading, frame, origin_ms)

    async def _show(self, session: Session, reading: _Reading, frame: MediaFrame, origin_ms: int) -> None:
        picture = FrameInput(frame.data, origin_ms + frame.media_time_ms)
        try:
            reading.charge(len(frame.data))
            await session.submit(AppendInput(self._ids("op"), InputUnit((picture,))))
        except ResourceExhausted:
            reading.dropped += 1  # the session is behind, or a quota used up; the next frame is newer anyway
        else:
            reading.frames += 1


async def _stopped(reading: _Reading) -> None:
    reading.task.cancel()
    await asyncio.gather(reading.task, return_exceptions=True)
    if reading.state == "playing":
        reading.state = "ended"


def _not_allowed(message: str) -> Forbidden:
    return Forbidden(message, code="source_not_allowed", param="source")
