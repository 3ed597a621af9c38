"""Media sources: files, folders, numbered pictures and live streams as one kind of sampled stream.

::

    source = open_media("clip.mp4", MediaOptions(bounds, period_ms=1000))
    async for frame in source.play():
        ...
    source.statistics()
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from bridges.media_http import HttpBody
from bridges.media_images import PICTURES, ImageReader, is_pattern, matching, natural
from bridges.media_live import LiveReader
from bridges.media_types import (
    MediaError,
    MediaFrame,
    MediaInfo,
    MediaOptions,
    MediaPiece,
    MediaSound,
    MediaStatistics,
    Reader,
    shown,
)
from bridges.media_video import Opened, VideoReader, duration_ms, open_http, open_rtsp, open_video

__all__ = [
    "MediaError",
    "MediaFrame",
    "MediaInfo",
    "MediaOptions",
    "MediaPiece",
    "MediaSound",
    "MediaSource",
    "MediaStatistics",
    "open_media",
]

VIDEOS = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".flv", ".3gp",
     ".ogv", ".wmv", ".y4m"}
)  # fmt: skip
_STREAMS = ("rtsp", "rtsps", "rtmp", "rtmps", "rtp", "udp", "srt", "mms")
_GUARDED = {"http": open_http, "https": open_http, "rtsp": open_rtsp, "rtsps": open_rtsp}
"""Protocols in which a server may send its client elsewhere."""
_READY = 4
"""Samples that wait for the consumer of a file; the decoder then waits too."""
_SOUNDS = 256
"""Pieces of a live stream's sound that wait for the consumer; then the oldest give way."""
_STOP_S = 30.0


class MediaSource:
    """One source that plays once. Decoding runs in a thread of its own.

    A file waits for its consumer; a live stream does not: its consumer gets the newest sample, and older ones
    nobody took are counted as dropped.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._live = reader.info.kind == "live"
        self._statistics = MediaStatistics()
        self._ready: deque[MediaPiece] = deque()
        self._lock = threading.Lock()
        self._space = threading.Semaphore(_READY)
        self._stop = threading.Event()
        self._failure: MediaError | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    @property
    def info(self) -> MediaInfo:
        return self._reader.info

    def statistics(self) -> dict[str, Any]:
        return {**self._statistics.as_dict(), "waiting": len(self._ready)}

    async def play(self) -> AsyncGenerator[MediaFrame, None]:
        """Samples in time order. Leaving the loop (or closing the generator) stops the decoder.

        :raises MediaError: as ``feed``
        """
        async with aclosing(self.feed()) as pieces:
            async for piece in pieces:
                if isinstance(piece, MediaFrame):
                    yield piece

    async def feed(self) -> AsyncGenerator[MediaPiece, None]:
        """As ``play``, and the sound with them where ``MediaOptions.sound_rate_hz`` asks for it.

        :raises MediaError: the source delivered nothing
        """
        if self._thread is not None:
            raise RuntimeError("a media source plays once; open it again")
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        self._thread = threading.Thread(target=self._work, args=(tell,), name="media", daemon=True)
        self._thread.start()
        try:
            while True:
                await arrived.wait()
                arrived.clear()
                while (piece := self._take()) is not None:
                    yield piece
                # The end is set after the last sample: whoever sees it must look once more.
                if self._ended and not self._ready:
                    break
            if self._failure is not None:
                raise self._failure
        finally:
            self._stop.set()
            self._space.release()
            await asyncio.to_thread(self._thread.join, _STOP_S)

    def _take(self) -> MediaPiece | None:
        with self._lock:
            if not self._ready:
                return None
            piece = self._ready.popleft()
        self._space.release()
        return piece

    def _make_room(self, piece: MediaPiece) -> None:
        """Of a live stream the newest picture waits, and so much of its sound."""
        if isinstance(piece, MediaFrame):
            kept = [each for each in self._ready if isinstance(each, MediaSound)]
            self._statistics.dropped += len(self._ready) - len(kept)
            self._ready = deque(kept)
        elif len(self._ready) >= _SOUNDS:
            oldest = next(each for each in self._ready if isinstance(each, MediaSound))
            self._ready.remove(oldest)
            self._statistics.sound_dropped += 1

    def _work(self, tell: Any) -> None:
        try:
            for piece in self._reader.pieces(self._stop, self._statistics):
                if not self._live:
                    self._space.acquire()
                if self._stop.is_set():
                    return
                with self._lock:
                    if self._live:
                        self._make_room(piece)
                    self._ready.append(piece)
                tell()
        except MediaError as failure:
            self._failure = failure
        except Exception as fault:
            # A decoder's surprise must not end in a thread that nobody hears.
            self._failure = MediaError("unreadable", f"{self.info.name}: {shown(str(fault))}")
        finally:
            self._ended = True
            tell()


def open_media(
    location: str, options: MediaOptions, place: Callable[[str], str] | None = None
) -> MediaSource:
    """Find out what ``location`` is and make it ready to play.

    A path to a video or picture, a folder (its videos if it has any, else its pictures, in natural order), a
    pattern (``frame_%04d.jpg``, ``frame_*.png``), or a URL. An HTTP URL with a length plays like a file.
    Blocking: it opens what it finds.

    :param place: asked before each connection which URL is really opened; without it all may be, and FFmpeg
        follows where they lead
    :raises MediaError: nothing there can be played
    """
    if "://" in location:
        return MediaSource(_remote(location, options, place))
    path = Path(location).expanduser()
    if path.is_dir():
        files = sorted((one for one in path.iterdir() if one.is_file()), key=natural)
        return MediaSource(_files(files, location, options))
    if path.exists():
        return MediaSource(_files([path], location, options, any_name=True))
    if is_pattern(location):
        return MediaSource(_files(matching(str(path)), location, options))
    raise MediaError("not_found", f"there is no {location}")


def _files(paths: list[Path], name: str, options: MediaOptions, *, any_name: bool = False) -> Reader:
    videos = [path for path in paths if path.suffix.lower() in VIDEOS]
    pictures = [path for path in paths if path.suffix.lower() in PICTURES]
    if any_name and not pictures:
        videos = paths
    if videos:
        return VideoReader([str(path) for path in videos], name, options)
    if pictures:
        return ImageReader(pictures, name, options)
    raise MediaError("not_found", f"there is no video and no picture in {name}")


def _remote(url: str, options: MediaOptions, place: Callable[[str], str] | None) -> Reader:
    def opened(url: str) -> Opened:
        if place is None:
            return open_video(url)
        guarded = _GUARDED.get(_scheme(url))
        return open_video(place(url)) if guarded is None else guarded(url, place)

    if _scheme(url) in _STREAMS:
        return LiveReader(url, options, open_=opened)
    with opened(url) as first:
        behind = first.behind
        endless = duration_ms(first.container, first.stream) is None or (
            isinstance(behind, HttpBody) and behind.endless
        )
    return (
        LiveReader(url, options, open_=opened) if endless else VideoReader([url], shown(url), options, opened)
    )


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()
