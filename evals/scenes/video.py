"""A scene as a video file: the camera's own frames at their own times, and its sound where there is some."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from evals.scenes.render import render
from evals.scenes.spec import Scene

_CLOCK = Fraction(1, 90000)


def write_video(
    path: Path,
    scene: Scene,
    size: tuple[int, int],
    track: npt.NDArray[np.int16] | None = None,
    track_hz: int = 16000,
) -> None:
    """H.264 in a container that the file's name tells, with a frame for each that the camera takes. Blocks.

    :param size: width and height in pixels, even
    :param track: samples of its sound, mono
    :raises ValueError: a size that can't be encoded
    """
    if size[0] % 2 or size[1] % 2:
        raise ValueError(f"a video's sides are even, not {size[0]} x {size[1]}")
    with av.open(str(path), "w") as file:
        video = file.add_stream("libx264", rate=30, options={"crf": "23", "preset": "veryfast"})
        video.width, video.height = size
        video.pix_fmt = "yuv420p"
        video.time_base = video.codec_context.time_base = _CLOCK
        sound = None
        if track is not None:
            sound = file.add_stream("aac", rate=track_hz, layout="mono")
        for at_s in scene.frame_times():
            frame = av.VideoFrame.from_ndarray(render(scene, at_s, size), format="rgb24")
            frame.pts, frame.time_base = round(at_s / _CLOCK), _CLOCK
            file.mux(video.encode(frame))
        file.mux(video.encode())
        if sound is not None and track is not None:
            for start in range(0, len(track), track_hz):
                piece = av.AudioFrame.from_ndarray(track[None, start : start + track_hz], "s16", "mono")
                piece.sample_rate, piece.pts, piece.time_base = track_hz, start, Fraction(1, track_hz)
                file.mux(sound.encode(piece))
            file.mux(sound.encode())
