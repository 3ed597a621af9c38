"""Frames at ingress: only sound, upright pictures within bounds go on, and each is encoded at most once."""

from __future__ import annotations

import asyncio
import io
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from PIL import Image, ImageOps

Result = TypeVar("Result")

JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_QUALITY = 90
_ORIENTATION = 0x0112
_MAX_ASPECT = 100


class FrameError(Exception):
    """A frame that cannot be used. The message says what to change.

    :param code: ``invalid_image``: broken, truncated or empty; ``unsupported_image``: neither JPEG nor PNG;
        ``frame_too_large``: more bytes or pixels than are decoded

    ``place``: which one it is of several that were checked together
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = 0


@dataclass(frozen=True, slots=True)
class FrameBounds:
    """What a frame may be.

    :param min_pixels: area below which a frame is enlarged; ``max_pixels``: above which it is reduced
    :param multiple: sides of re-encoded frames are multiples of it
    :param max_bytes: encoded size that is looked at at all; ``max_decode_pixels``: area that is decoded
    """

    min_pixels: int
    max_pixels: int
    multiple: int = 1
    max_bytes: int = 16 * 1024 * 1024
    max_decode_pixels: int = 50_000_000

    def __post_init__(self) -> None:
        if not self.multiple**2 <= self.max_pixels <= self.max_decode_pixels:
            raise ValueError("max_pixels must hold at least one square of `multiple` and be decodable")
        if self.min_pixels > self.max_pixels:
            raise ValueError("min_pixels must not exceed max_pixels")

    def holds(self, width: int, height: int) -> bool:
        """A picture of this size may stay as it is."""
        return self.min_pixels <= width * height <= self.max_pixels and min(width, height) >= self.multiple


@dataclass(frozen=True, slots=True)
class CheckedFrame:
    """JPEG or PNG that decodes, upright, within bounds. ``passed_through``: these are the client's bytes."""

    data: bytes
    width: int
    height: int
    passed_through: bool


def check_frame(data: bytes, bounds: FrameBounds) -> CheckedFrame:
    """Decode and bound one encoded frame.

    A frame that is within bounds, upright, 8-bit, opaque and still keeps its bytes. Any other sound one is
    turned, flattened onto white, resized and encoded as JPEG.

    :raises FrameError: it cannot be used
    """
    if not data:
        raise FrameError("invalid_image", "the frame is empty")
    if len(data) > bounds.max_bytes:
        raise FrameError(
            "frame_too_large", f"the frame has {len(data)} bytes; send at most {bounds.max_bytes}"
        )
    if not data.startswith((JPEG_MAGIC, PNG_MAGIC)):
        raise FrameError("unsupported_image", "the frame is neither JPEG nor PNG; send one of them")
    try:
        return _check(data, bounds, ("JPEG", "PNG"))
    except FrameError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as huge:
        raise FrameError("frame_too_large", f"the frame has too many pixels: {huge}") from huge
    except Exception as broken:
        # Decoders fed with broken data raise whatever they come across.
        raise FrameError("invalid_image", f"the frame cannot be decoded: {broken}") from broken


def convert_picture(data: bytes, bounds: FrameBounds) -> CheckedFrame:
    """Like :func:`check_frame`, for pictures from a trusted disk: any format that Pillow reads.

    :raises FrameError: it cannot be used
    """
    if data.startswith((JPEG_MAGIC, PNG_MAGIC)):
        return check_frame(data, bounds)
    try:
        return _check(data, bounds, None)
    except FrameError:
        raise
    except Exception as broken:
        raise FrameError("invalid_image", f"the picture cannot be decoded: {broken}") from broken


def bounded_size(width: int, height: int, bounds: FrameBounds) -> tuple[int, int]:
    """The size nearest to this shape whose area is within bounds and whose sides are multiples.

    Where no such size exists, the upper bound wins.
    """
    area, step = width * height, bounds.multiple
    scale = math.sqrt(min(max(area, bounds.min_pixels), bounds.max_pixels) / area)
    sides = [max(step, round(side * scale / step) * step) for side in (width, height)]
    while sides[0] * sides[1] > bounds.max_pixels:
        longer = 0 if sides[0] >= sides[1] else 1
        sides[longer] -= step
    while sides[0] * sides[1] < bounds.min_pixels:
        shorter = 0 if sides[0] <= sides[1] else 1
        grown = (sides[shorter] + step) * sides[1 - shorter]
        if grown > bounds.max_pixels:
            break
        sides[shorter] += step
    return sides[0], sides[1]


def encode_jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def _check(data: bytes, bounds: FrameBounds, formats: tuple[str, ...] | None) -> CheckedFrame:
    with Image.open(io.BytesIO(data), formats=formats) as image:
        width, height = image.size
        if width < 1 or height < 1:
            raise FrameError("invalid_image", f"the frame is {width}x{height} pixels")
        if width * height > bounds.max_decode_pixels:
            raise FrameError(
                "frame_too_large",
                f"the frame is {width}x{height} pixels; send at most {bounds.max_decode_pixels}",
            )
        if max(width, height) > _MAX_ASPECT * min(width, height):
            raise FrameError("invalid_image", f"a frame of {width}x{height} pixels is too narrow")
        turned = image.getexif().get(_ORIENTATION, 1) in range(2, 9)
        still = not getattr(image, "is_animated", False)
        plain = image.mode in ("RGB", "L") and "transparency" not in image.info and formats is not None
        passes = bounds.holds(width, height) and plain and still and not turned
        # The JPEG decoder makes the picture smaller while it decodes: as small as can be where it is decoded
        # only to see whether it can be (all its data is read even so), else so that enough is left to resize.
        if passes:
            image.draft(None, (1, 1))
        elif width * height > bounds.max_pixels:
            image.draft(None, (math.isqrt(bounds.max_pixels) * 2,) * 2)
        image.load()
        if passes:
            return CheckedFrame(data, width, height, passed_through=True)
        upright = ImageOps.exif_transpose(image) if turned else image
        if turned and upright.size != image.size:
            width, height = height, width
        size = bounded_size(width, height, bounds)
        flat = _flat(upright)
        if flat.size != size:
            flat = flat.resize(size, Image.Resampling.LANCZOS)
        return CheckedFrame(encode_jpeg(flat), *size, passed_through=False)


def _flat(image: Image.Image) -> Image.Image:
    """Opaque 8-bit RGB; what was transparent is white."""
    if image.mode.startswith("I") or image.mode == "F":
        deep = np.asarray(image, dtype=np.float64)
        top = 65535.0 if deep.max(initial=0) > 255 else 255.0
        image = Image.fromarray(np.clip(deep * (255.0 / top), 0, 255).astype(np.uint8))
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


class FrameGate:
    """Checks frames in worker threads, so many at a time; callers wait their turn.

    :param bounds: of every frame
    :param workers: threads; more than there are cores, since what follows a check there may wait for a disk
    """

    def __init__(self, bounds: FrameBounds, workers: int = 4) -> None:
        self._bounds = bounds
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="frame-check")
        # One slot a worker: the pool's own queue stays empty, and what waits is its caller.
        self._slots = asyncio.Semaphore(workers)
        self._waiting = 0
        self._counts: Counter[str] = Counter()

    async def check(
        self,
        frames: Sequence[bytes],
        max_pixels: int | None,
        then: Callable[[Sequence[CheckedFrame]], Result],
    ) -> Result:
        """Frames that come together: all of them are sound or the first that is not is refused.

        :param max_pixels: instead of the bounds' own
        :param then: called with the checked frames in the same thread: its result is what is returned
        :raises FrameError: see :func:`check_frame`
        """
        bounds = self._bounds
        if max_pixels is not None and max_pixels != bounds.max_pixels:
            bounds = replace(bounds, max_pixels=max_pixels, min_pixels=min(bounds.min_pixels, max_pixels))
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        try:
            work = self._pool.submit(self._checked, frames, bounds, then)
        except BaseException:
            self._slots.release()
            raise
        waiter: asyncio.Future[tuple[list[str], Result]] = loop.create_future()

        def done(ended: Future[Any]) -> None:
            # Not by the name above: work that holds what holds it would keep each frame until a collection.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._done, ended, waiter)

        work.add_done_callback(done)
        try:
            outcomes, result = await waiter
        except FrameError as refused:
            self._counts[refused.code] += 1
            raise
        self._counts.update(outcomes)
        return result

    def _done(self, work: Future[Any], waiter: asyncio.Future[Any]) -> None:
        """The slot is free when the thread is, even if the caller has left by then."""
        self._slots.release()
        if waiter.done():
            return
        if (error := work.exception()) is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(work.result())

    @staticmethod
    def _checked(
        frames: Sequence[bytes], bounds: FrameBounds, then: Callable[[Sequence[CheckedFrame]], Result]
    ) -> tuple[list[str], Result]:
        checked: list[CheckedFrame] = []
        for place, data in enumerate(frames):
            try:
                checked.append(check_frame(data, bounds))
            except FrameError as refused:
                refused.place = place
                raise
        outcomes = ["passed_through" if each.passed_through else "encoded" for each in checked]
        return outcomes, then(checked)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def statistics(self) -> dict[str, Any]:
        """Frames by outcome (``passed_through``, ``encoded``, error codes), and how many wait now."""
        return {**self._counts, "waiting": self._waiting}
