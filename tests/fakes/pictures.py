"""Small real pictures for tests: same arguments, same bytes."""

from __future__ import annotations

import functools
import io

from PIL import Image, ImageDraw


@functools.lru_cache(maxsize=4096)
def jpeg(number: int, width: int = 64, height: int = 64) -> bytes:
    """A JPEG that differs from every other ``number``."""
    return _encode(_draw(number, width, height), "JPEG")


@functools.lru_cache(maxsize=256)
def png(number: int, width: int = 64, height: int = 64) -> bytes:
    return _encode(_draw(number, width, height), "PNG")


def _draw(number: int, width: int, height: int) -> Image.Image:
    image = Image.new("RGB", (width, height), ((number * 37) % 256, (number * 91) % 256, (number * 13) % 256))
    ImageDraw.Draw(image).text((2, height // 3), str(number), fill="white")
    return image


def _encode(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, quality=80)
    return out.getvalue()
