"""Frames of a load: one set of JPEGs for all sessions, made different for each by a comment in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import av
from PIL import Image, ImageOps

SUFFIXES = frozenset({".mp4", ".mkv", ".webm", ".mov", ".avi", ".jpg", ".jpeg", ".png"})
QUALITY = 85


class NoPictures(Exception):
    """The source has none. The message says what to give."""


def prepare(source: Path, folder: Path, size: tuple[int, int], period_s: float, most: int) -> int:
    """Write pictures of a source into ``folder``; how many there are.

    :param source: a video or a picture, or a folder of them at any depth
    :param size: width and height that they are fitted to
    :param period_s: of a video's time between two of its pictures
    :raises NoPictures: nothing there can be shown
    """
    files = _files(source)
    each = (picture for path in files for picture in sampled(path, period_s))
    number = -1
    for number, picture in enumerate(islice(each, most)):
        ImageOps.fit(picture, size).save(folder / f"{number:05d}.jpg", "JPEG", quality=QUALITY)
    if number < 0:
        raise NoPictures(f"{source} holds no video and no picture")
    return number + 1


def read(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]


def sampled(path: Path, period_s: float) -> Iterator[Image.Image]:
    """The pictures of a video, ``period_s`` apart. :raises NoPictures: it can't be read"""
    try:
        with av.open(str(path)) as container:
            due = None
            for frame in container.decode(video=0):
                at = frame.time or 0.0
                if due is None or at >= due:
                    due = at + period_s
                    yield frame.to_image()  # type: ignore[no-untyped-call]
    except (av.error.FFmpegError, IndexError) as bad:
        raise NoPictures(f"{path} can't be read: {bad}") from bad


def commented(jpeg: bytes, text: str) -> bytes:
    """The same picture with a comment segment after its first marker."""
    comment = text.encode()
    return jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise NoPictures(f"{source} holds no video and no picture")
    return found
