"""Pictures from real clips, as a camera would send them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import av
from PIL import Image, ImageOps

from evals.clips import clip

PATCH = 16
CLIPS = ("bikes.mp4", "bigbuckbunny.mp4")


def clip_pictures(size: tuple[int, int], count: int, mark: int) -> list[bytes]:
    """``count`` different JPEGs of that width and height: the clips, then the clips mirrored.

    :param mark: put into a corner of each as a patch of noise, so that an engine that saw the pictures of
        another run, with another mark, has none of these in its image cache
    """
    made: list[bytes] = []
    noise = random.Random(mark)
    for mirrored in (False, True):
        for name in CLIPS:
            made += [_made(p, size, mirrored, noise) for p in islice(_frames(clip(name)), count - len(made))]
    if len(made) < count:
        raise ValueError(f"the clips hold {len(made)} pictures, not {count}")
    return made


def _frames(path: Path) -> Iterator[Image.Image]:
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_image()  # type: ignore[no-untyped-call]


def _made(picture: Image.Image, size: tuple[int, int], mirrored: bool, noise: random.Random) -> bytes:
    fitted = ImageOps.fit(picture, size)
    if mirrored:
        fitted = ImageOps.mirror(fitted)
    fitted.paste(Image.frombytes("RGB", (PATCH, PATCH), noise.randbytes(3 * PATCH * PATCH)), (0, 0))
    out = io.BytesIO()
    fitted.save(out, "JPEG", quality=85)
    return out.getvalue()
