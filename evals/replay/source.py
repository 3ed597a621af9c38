"""The video of a replay: what ``bridges.media`` plays, with its failures as exit codes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from bridges.frames import FrameBounds
from bridges.media import MediaError, MediaInfo, MediaOptions, MediaSource, open_media
from evals.replay.drive import Frame, Sampling
from evals.replay.options import ReplayError
from orchestrator.exits import Exit, exit_of_source

_ANY_BOUNDS = FrameBounds(1, 50_000_000)


class Source(Protocol):
    """A video to watch.

    ``live``: frames are gone once their time has passed; otherwise the source waits and loses none.
    """

    live: bool

    def info(self) -> Mapping[str, Any]:
        """JSON-ready facts: ``name``, ``width``, ``height`` and the like, as far as known."""

    def warnings(self) -> Sequence[str]:
        """What the decoder complained about up to now."""

    def dropped(self) -> int:
        """Frames of a live source that newer ones replaced before they were asked for."""

    def expected(self, sampling: Sampling) -> int | None:
        """Frames it will give, if it tells its length."""

    def frames(self, sampling: Sampling) -> AsyncGenerator[Frame, None]:
        """One frame a period in time order; media time starts at 0.

        Raises ``ReplayError`` when nothing in it can be shown.
        """


class Video:
    """A file, folder, picture series or stream.

    :param loop: how often it is played, media time running on
    :raises ReplayError: there is nothing to play
    """

    def __init__(self, location: str, loop: int = 1) -> None:
        self._location = location
        self._options = MediaOptions(_ANY_BOUNDS, loop=loop)
        self._playing: MediaSource | None = None
        self._size: tuple[int, int] | None = None
        # Opened once now, so that a wrong path is told before an engine is started for it.
        self._info: MediaInfo = self._open(self._options).info
        self.live = self._info.kind == "live"
        if self.live and loop > 1:
            raise ReplayError(
                Exit.USAGE, "live_loop", "a live stream can't be played twice; leave out --loop"
            )

    def info(self) -> Mapping[str, Any]:
        # The name alone: a URL may hold a password, and a path says more than a report should.
        name = self._location.rpartition("@")[2] if "://" in self._location else Path(self._location).name
        facts: dict[str, Any] = {"name": name or self._location, "kind": self._info.kind}
        if self._info.duration_ms is not None:
            facts["duration_s"] = self._info.duration_ms / 1000
        if self._size is not None:
            facts["width"], facts["height"] = self._size
        if self._playing is not None:
            counters = self._playing.statistics()
            facts |= {name: counters[name] for name in ("corrupt", "skipped", "reconnects") if counters[name]}
        return facts

    def warnings(self) -> Sequence[str]:
        return list(self._playing.statistics()["warnings"]) if self._playing else []

    def dropped(self) -> int:
        return int(self._playing.statistics()["dropped"]) if self._playing else 0

    def expected(self, sampling: Sampling) -> int | None:
        duration = self._info.duration_ms
        return None if duration is None else max(1, -(-duration // sampling.period_ms))

    async def frames(self, sampling: Sampling) -> AsyncGenerator[Frame, None]:
        options = replace(self._options, bounds=sampling.bounds, period_ms=sampling.period_ms)
        self._playing = self._open(options)
        try:
            async with aclosing(self._playing.play()) as pictures:
                async for picture in pictures:
                    self._size = self._size or (picture.width, picture.height)
                    yield Frame(picture.media_time_ms, picture.data)
        except MediaError as error:
            raise _ended(error) from error

    def _open(self, options: MediaOptions) -> MediaSource:
        try:
            return open_media(self._location, options)
        except MediaError as error:
            raise _ended(error) from error


def _ended(error: MediaError) -> ReplayError:
    # FFmpeg and we quote the location: never with the password that may be in it.
    return ReplayError(exit_of_source(error.code), error.code, re.sub(r"://[^/@\s]+@", "://", error.message))
