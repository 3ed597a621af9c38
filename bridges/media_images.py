"""Picture files as a stream: a folder, a numbered pattern or a glob, in natural order."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

from bridges.frames import FrameError, convert_picture
from bridges.media_types import MediaError, MediaFrame, MediaInfo, MediaOptions, MediaStatistics

PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
_NUMBER = re.compile(r"%(?:0?\d+)?d")
_DIGITS = re.compile(r"(\d+)")


class ImageReader:
    """Plays pictures at ``period_ms / frames_per_tick``: the time of a picture is its place in the order.

    A picture that cannot be used is skipped and counted, and leaves its time empty.
    """

    def __init__(self, paths: list[Path], name: str, options: MediaOptions) -> None:
        self._paths = paths
        self._options = options
        end = self._time(len(paths) * options.loop)
        limit = options.max_duration_ms
        self.info = MediaInfo("images", name, end if limit is None else min(end, limit))

    def pieces(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaFrame]:
        limit = self._options.max_duration_ms
        index = 0
        for _ in range(self._options.loop):
            for path in self._paths:
                time_ms = self._time(index)
                if stop.is_set() or (limit is not None and time_ms >= limit):
                    return
                index += 1
                try:
                    checked = convert_picture(path.read_bytes(), self._options.bounds)
                except (FrameError, OSError) as unusable:
                    statistics.skipped += 1
                    statistics.warn(f"{path.name}: {unusable}")
                    continue
                statistics.decoded += 1
                statistics.delivered += 1
                yield MediaFrame(time_ms, checked.data, checked.width, checked.height, path.name)
            if not statistics.delivered:
                raise MediaError("unreadable", f"no picture of {self.info.name} decodes")

    def _time(self, index: int) -> int:
        return index * self._options.period_ms // self._options.frames_per_tick


def natural(path: Path) -> list[int | str]:
    """Sort key: ``frame9`` before ``frame10``."""
    pieces = _DIGITS.split(path.name.lower())
    return [int(piece) if place % 2 else piece for place, piece in enumerate(pieces)]


def is_pattern(location: str) -> bool:
    return bool(_NUMBER.search(Path(location).name)) or any(sign in location for sign in "*?[")


def matching(location: str) -> list[Path]:
    """Files of a pattern (``frame_%04d.jpg`` or ``frame_*.jpg``), in natural order.

    A number matches with any count of digits.
    """
    path = Path(location)
    if number := _NUMBER.search(path.name):
        before, after = path.name[: number.start()], path.name[number.end() :]
        wanted = re.compile(re.escape(before) + r"\d+" + re.escape(after))
        found = (
            [one for one in path.parent.iterdir() if wanted.fullmatch(one.name)]
            if path.parent.is_dir()
            else []
        )
    else:
        root = Path(path.anchor)
        found = list(root.glob(str(path.relative_to(root))))
    return sorted((one for one in found if one.is_file()), key=natural)
