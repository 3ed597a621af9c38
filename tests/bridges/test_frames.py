"""Ingress: sound frames within bounds keep their bytes, the rest is bounded once or refused with a code."""

from __future__ import annotations

import asyncio
import gc
import io
import struct
import threading
import weakref
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import bridges.frames
from bridges.frames import (
    CheckedFrame,
    FrameBounds,
    FrameError,
    FrameGate,
    bounded_size,
    check_frame,
    convert_picture,
)
from tests.fakes.pictures import jpeg, png
from tests.realtime.serving import eventually

BOUNDS = FrameBounds(min_pixels=32 * 32, max_pixels=256 * 256, multiple=32)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def code(data: bytes, bounds: FrameBounds = BOUNDS) -> str:
    with pytest.raises(FrameError) as caught:
        check_frame(data, bounds)
    return caught.value.code


def halves(width: int, height: int) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (width, height), "red")
    image.paste("blue", (width // 2, 0, width, height))
    return image


@pytest.mark.parametrize("data", [jpeg(1, 100, 90), png(1, 100, 90), encoded(Image.new("L", (64, 64)))])
def test_a_good_frame_keeps_its_bytes(data: bytes) -> None:
    checked = check_frame(data, BOUNDS)
    assert checked.data is data and checked.passed_through
    assert (checked.width, checked.height) == opened(data).size


def test_a_large_frame_is_reduced_and_a_small_one_enlarged() -> None:
    large = check_frame(jpeg(2, 1920, 1080), BOUNDS)
    assert (large.width, large.height, large.passed_through) == (320, 192, False)
    assert opened(large.data).size == (320, 192)
    small = check_frame(jpeg(2, 9, 9), BOUNDS)
    assert (small.width, small.height) == (32, 32)
    assert check_frame(large.data, BOUNDS).passed_through


@pytest.mark.parametrize(
    ("orientation", "left"), [(3, "blue"), (6, None), (8, None), (2, "blue"), (1, "red")]
)
def test_turned_by_its_orientation(orientation: int, left: str | None) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    checked = check_frame(encoded(halves(128, 64), exif=exif, quality=95), BOUNDS)
    assert checked.passed_through == (orientation == 1)
    image = opened(checked.data)
    assert not image.getexif().get(0x0112) or orientation == 1
    if left is None:
        # Quarter turns: 6 turns clockwise, so the left half goes to the top.
        assert image.size == (64, 128)
        top = image.getpixel((32, 16))
        assert isinstance(top, tuple) and (top[0] > 128) == (orientation == 6)
    else:
        pixel = image.getpixel((16, 32))
        assert isinstance(pixel, tuple) and (pixel[0] > 128) == (left == "red")


def test_odd_kinds_of_pixels_become_plain_ones() -> None:
    deep = Image.fromarray(np.full((64, 64), 0x8000, np.uint16))
    clear = Image.new("RGBA", (64, 64), (255, 0, 0, 0))
    palette = Image.new("P", (64, 64))
    for image, kind, options, expected in [
        (deep, "PNG", {}, 128),
        (clear, "PNG", {}, 255),
        (Image.new("CMYK", (64, 64), (0, 0, 0, 255)), "JPEG", {}, 0),
        (Image.new("LA", (64, 64), (0, 0)), "PNG", {}, 255),
        (Image.new("1", (64, 64), 1), "PNG", {}, 255),
        (palette, "PNG", {"transparency": 0}, 255),
    ]:
        checked = check_frame(encoded(image, kind, **options), BOUNDS)
        out = opened(checked.data)
        assert (checked.passed_through, out.mode, out.format, out.size) == (False, "RGB", "JPEG", (64, 64))
        green = np.asarray(out)[32, 32, 1]
        assert abs(int(green) - expected) <= 2


def test_an_animation_is_its_first_picture() -> None:
    frames = [Image.new("RGB", (64, 64), color) for color in ("red", "blue")]
    checked = check_frame(encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]), BOUNDS)
    assert not checked.passed_through
    assert np.asarray(opened(checked.data))[0, 0, 0] > 200


@given(
    st.sampled_from(
        [jpeg(3, 96, 64), encoded(halves(64, 96), progressive=True), encoded(Image.new("L", (64, 64)))]
    ),
    st.integers(0, 3000),
    st.lists(st.tuples(st.integers(2, 3000), st.integers(0, 255)), max_size=3),
)
def test_a_frame_is_taken_just_where_all_of_it_can_be_decoded(
    whole: bytes, cut: int, changes: list[tuple[int, int]]
) -> None:
    """It is decoded small, which must not make the check any milder."""
    data = bytearray(whole[: max(4, len(whole) - cut)])
    for place, value in changes:
        data[place % len(data)] = value
    data[:3] = whole[:3]
    try:
        sound = bool(opened(bytes(data)).size)
    except Exception:
        sound = False
    try:
        taken = check_frame(bytes(data), BOUNDS).passed_through
    except FrameError:
        taken = False
    assert taken <= sound
    if sound and not changes:
        assert taken


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds nearly nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 10))
        + chunk(b"IEND", b"")
    )


def test_refused_with_a_code() -> None:
    good = jpeg(3, 100, 100)
    assert code(b"") == "invalid_image"
    assert code(b"GIF89a" + bytes(100)) == "unsupported_image"
    assert code(b"<svg></svg>") == "unsupported_image"
    assert code(good[: len(good) // 2]) == "invalid_image"
    assert code(b"\xff\xd8\xff" + bytes(100)) == "invalid_image"
    assert code(png_header(64, 64)) == "invalid_image"
    assert code(png_header(0, 64)) == "invalid_image"
    assert code(png_header(100_000, 100_000)) == "frame_too_large"
    assert code(png_header(30_000, 20_000)) == "frame_too_large"
    assert code(png_header(10_000, 8_000)) == "frame_too_large"
    assert code(png_header(60_000, 20)) == "invalid_image"
    assert code(good, FrameBounds(1, 10_000, max_bytes=100)) == "frame_too_large"


@given(st.integers(0, 2000), st.integers(0, 255), st.booleans())
def test_damaged_bytes_never_raise_anything_else(place: int, value: int, of_png: bool) -> None:
    data = bytearray((png if of_png else jpeg)(4, 64, 64))
    data[place % len(data)] = value
    try:
        checked = check_frame(bytes(data), BOUNDS)
    except FrameError as refused:
        assert refused.code in ("invalid_image", "unsupported_image", "frame_too_large")
    else:
        assert checked.width * checked.height <= BOUNDS.max_pixels


@given(
    st.integers(1, 4000), st.integers(1, 4000), st.sampled_from([1, 14, 28, 32]), st.integers(1024, 300_000)
)
def test_bounded_size(width: int, height: int, multiple: int, max_pixels: int) -> None:
    bounds = FrameBounds(min_pixels=max_pixels // 8, max_pixels=max_pixels, multiple=multiple)
    new_width, new_height = bounded_size(width, height, bounds)
    assert new_width % multiple == 0 and new_height % multiple == 0
    assert 0 < new_width * new_height <= max_pixels
    if max(width, height) < 4 * min(width, height) and max_pixels > 64 * multiple**2:
        assert new_width * new_height >= bounds.min_pixels
        assert 0.5 < (new_width / new_height) / (width / height) < 2


def test_pictures_from_disk_may_have_any_format() -> None:
    for kind in ("WEBP", "BMP", "TIFF", "GIF"):
        checked = convert_picture(encoded(halves(128, 64), kind), BOUNDS)
        assert opened(checked.data).format == "JPEG" and (checked.width, checked.height) == (128, 64)
    with pytest.raises(FrameError):
        convert_picture(b"text", BOUNDS)


async def checked(gate: FrameGate, data: bytes, max_pixels: int | None = None) -> CheckedFrame:
    return await gate.check([data], max_pixels, lambda frames: frames[0])


async def test_a_session_may_ask_for_smaller_frames_than_the_gate_allows() -> None:
    gate = FrameGate(FrameBounds(64 * 64, 512 * 512, 32))
    data = jpeg(3, 512, 512)
    assert (await checked(gate, data)).passed_through
    smaller = await checked(gate, data, 256 * 256)
    assert (smaller.width, smaller.height, smaller.passed_through) == (256, 256, False)
    tiny = await checked(gate, data, 32 * 32)  # below what the gate enlarges to
    assert (tiny.width, tiny.height) == (32, 32)
    assert (await checked(gate, data, 512 * 512)).passed_through
    gate.close()


async def test_frames_that_come_together_are_all_sound_or_none_goes_on() -> None:
    gate = FrameGate(BOUNDS)
    seen: list[int] = []

    def then(frames: Sequence[CheckedFrame]) -> str:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(len(frames))
        return "done"

    assert await gate.check([jpeg(1, 64, 64), png(2, 64, 64)], None, then) == "done"
    with pytest.raises(FrameError) as refused:
        await gate.check([jpeg(1, 64, 64), b"junk"], None, then)
    assert refused.value.place == 1 and seen == [2]
    assert gate.statistics() == {"passed_through": 2, "unsupported_image": 1, "waiting": 0}
    gate.close()


async def test_a_frame_goes_with_the_last_who_holds_it() -> None:
    """Contract: no cycle keeps a checked frame until a collection, which would take longer for it too."""

    class Stored:
        pass

    gate = FrameGate(BOUNDS)
    gc.collect()
    gc.disable()
    try:
        stored = weakref.ref(await gate.check([jpeg(1, 64, 64)], None, lambda _: Stored()))
        await eventually(lambda: stored() is None)
    finally:
        gc.enable()
        gate.close()


async def test_the_gate_bounds_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract: never more checks at a time than workers, also when callers are cancelled."""
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(data: bytes, bounds: FrameBounds) -> bridges.frames.CheckedFrame:
        entered.release()
        leave.wait(10)
        return check_frame(data, bounds)

    monkeypatch.setattr(bridges.frames, "check_frame", slow)
    gate = FrameGate(BOUNDS, workers=2)
    tasks = [asyncio.create_task(checked(gate, jpeg(5))) for _ in range(6)]
    for _ in range(2):
        assert await asyncio.to_thread(entered.acquire, True, 10)
    assert gate.statistics()["waiting"] == 4
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert gate.statistics()["waiting"] == 4
    leave.set()
    done = await asyncio.gather(*tasks[1:])
    assert len(done) == 5 and gate.statistics()["passed_through"] == 5
    with pytest.raises(FrameError):
        await checked(gate, b"junk")
    assert gate.statistics()["unsupported_image"] == 1
    gate.close()
