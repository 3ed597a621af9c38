"""Square pictures from real clips, as a camera would send them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import av
from PIL import Image, ImageOps

from evals.clips import clip

CLIPS = ("bikes.mp4", "bigbuckbunny.mp4")


def squares(side: int, count: int) -> list[bytes]:
    """``count`` different JPEGs of ``side`` x ``side`` pixels: the clips, then the clips mirrored."""
    made: list[bytes] = []
    for mirrored in (False, True):
        for name in CLIPS:
            made += [_square(p, side, mirrored) for p in islice(_pictures(clip(name)), count - len(made))]
    if len(made) < count:
        raise ValueError(f"the clips hold {len(made)} pictures, not {count}")
    return made


def _pictures(path: Path) -> Iterator[Image.Image]:
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_image()  # type: ignore[no-untyped-call]


def _square(picture: Image.Image, side: int, mirrored: bool) -> bytes:
    fitted = ImageOps.fit(picture, (side, side))
    out = io.BytesIO()
    (ImageOps.mirror(fitted) if mirrored else fitted).save(out, "JPEG", quality=85)
    return out.getvalue()
