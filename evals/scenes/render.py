"""Pixels of a scene at a moment: fast, the same every time, smooth at the edges."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from evals.scenes.spec import Backdrop, Scene, Sign, Thing, shown

Picture = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.float32]

_FINE = 4
"""Masks are drawn this many times as large: edges are smooth, places are good to a quarter of a pixel."""
_NOISE_SIDE = 256


def render(scene: Scene, t_s: float, size: int | tuple[int, int]) -> Picture:
    """The frame taken at ``t_s``: ``height x width x 3`` of RGB.

    :param size: the side of a square, or ``(width, height)`` in pixels
    """
    width, height = (size, size) if isinstance(size, int) else size
    right, down = _wander(scene, t_s, height)
    margin = math.ceil(scene.camera.shake * height) + 1 if scene.camera.shake else 0
    behind = _backdrop(scene.backdrop(t_s), scene.seed, width + 2 * margin, height + 2 * margin)
    top, left = margin - down, margin - right
    picture = behind[top : top + height, left : left + width].copy()
    for thing in scene.things:
        if shown(thing.spans, t_s):
            _draw_thing(picture, thing, t_s, right, down)
    for sign in scene.signs:
        if shown(sign.spans, t_s):
            _draw_sign(picture, sign, right, down)
    if scene.camera.noise:
        _add_noise(picture, scene, t_s)
    return picture


def thing_mask(thing: Thing, t_s: float, size: tuple[int, int]) -> tuple[Mask, int, int]:
    """How much of each pixel the thing covers, 0 to 1; left and top of that mask in a still picture."""
    width, height = size
    x, y = thing.place(t_s)
    column, row = round(x * width * _FINE), round(y * height * _FINE)
    mask = _shape(
        thing.kind.shape,
        max(round(thing.size * min(size) * _FINE), 1),
        thing.turn,
        column % _FINE,
        row % _FINE,
    )
    return mask, column // _FINE - mask.shape[1] // 2, row // _FINE - mask.shape[0] // 2


def _draw_thing(picture: Picture, thing: Thing, t_s: float, right: int, down: int) -> None:
    mask, left, top = thing_mask(thing, t_s, (picture.shape[1], picture.shape[0]))
    _blend(picture, mask, left + right, top + down, thing.rgb)


def _draw_sign(picture: Picture, sign: Sign, right: int, down: int) -> None:
    height, width = picture.shape[:2]
    letters = _letters(sign.word, max(round(sign.size * min(width, height)), 6))
    rows, columns = letters.shape
    pad = max(rows // 4, 2)
    left = round(sign.x * width) - columns // 2 + right
    top = round(sign.y * height) - rows // 2 + down
    plate = np.ones((rows + 2 * pad, columns + 2 * pad), np.float32)
    _blend(picture, plate, left - pad, top - pad, sign.plate)
    _blend(picture, letters, left, top, sign.rgb)


def _blend(picture: Picture, mask: Mask, left: int, top: int, rgb: tuple[int, int, int]) -> None:
    """Paint through a mask; what lies outside the picture is cut off."""
    rows, columns = picture.shape[:2]
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = min(top + mask.shape[0], rows), min(left + mask.shape[1], columns)
    if y0 >= y1 or x0 >= x1:
        return
    share = mask[y0 - top : y1 - top, x0 - left : x1 - left, None]
    under = picture[y0:y1, x0:x1]
    paint = np.array(rgb, np.float32)
    picture[y0:y1, x0:x1] = (under + (paint - under) * share + np.float32(0.5)).astype(np.uint8)


@lru_cache(maxsize=4096)
def _shape(shape: str, radius: int, turn: float, column: int, row: int) -> Mask:
    """A shape's coverage; radius and offset count fine pixels. The centre lies in the mask's middle pixel."""
    half = math.ceil(radius * 1.1 / _FINE) + 1
    side = 2 * half + 1
    image = Image.new("L", (side * _FINE, side * _FINE), 0)
    draw = ImageDraw.Draw(image)
    x, y = half * _FINE + column, half * _FINE + row

    def disc(at_x: float, at_y: float, r: float, ink: int) -> None:
        draw.ellipse((at_x - r, at_y - r, at_x + r, at_y + r), fill=ink)

    if shape == "circle":
        disc(x, y, radius, 255)
    elif shape == "ring":
        disc(x, y, radius, 255)
        disc(x, y, radius * 0.55, 0)
    elif shape == "moon":
        disc(x, y, radius, 255)
        angle = math.radians(turn)
        disc(x + 0.5 * radius * math.cos(angle), y - 0.5 * radius * math.sin(angle), radius * 0.85, 0)
    else:
        cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        points = [
            (x + radius * (px * cos + py * sin), y + radius * (py * cos - px * sin))
            for px, py in _outline(shape)
        ]
        draw.polygon(points, fill=255)
    small = image.resize((side, side), Image.Resampling.BOX)
    mask = np.asarray(small, np.float32) / np.float32(255)
    mask.flags.writeable = False
    return mask


@lru_cache(maxsize=32)
def _outline(shape: str) -> tuple[tuple[float, float], ...]:
    """Corners of a shape of radius 1 around 0, y downwards."""
    if shape == "square":
        return ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88))
    if shape == "diamond":
        return ((0, -1), (0.72, 0), (0, 1), (-0.72, 0))
    if shape == "triangle":
        return ((0, -0.95), (1, 0.8), (-1, 0.8))
    if shape == "cross":
        a, b = 0.34, 0.98
        return (
            (-a, -b),
            (a, -b),
            (a, -a),
            (b, -a),
            (b, a),
            (a, a),
            (a, b),
            (-a, b),
            (-a, a),
            (-b, a),
            (-b, -a),
            (-a, -a),
        )
    if shape == "hexagon":
        return tuple((math.cos(k * math.pi / 3), math.sin(k * math.pi / 3)) for k in range(6))
    if shape == "star":
        radii = (1.0, 0.42)
        return tuple(
            (radii[k % 2] * math.sin(k * math.pi / 5), -radii[k % 2] * math.cos(k * math.pi / 5))
            for k in range(10)
        )
    if shape == "heart":
        steps = (k * math.pi / 16 for k in range(32))
        return tuple(
            (
                math.sin(s) ** 3,
                -(13 * math.cos(s) - 5 * math.cos(2 * s) - 2 * math.cos(3 * s) - math.cos(4 * s)) / 16.5,
            )
            for s in steps
        )
    raise ValueError(f"no shape {shape!r}")


@lru_cache(maxsize=512)
def _letters(word: str, pixels: int) -> Mask:
    """A word's coverage, its capitals about ``pixels`` high. The font is Pillow's: the same everywhere."""
    font = ImageFont.load_default(pixels * 1.4)
    left, top, right, bottom = (math.floor(edge) for edge in font.getbbox(word, stroke_width=_stroke(pixels)))
    image = Image.new("L", (right - left + 1, bottom - top + 1), 0)
    ImageDraw.Draw(image).text((-left, -top), word, fill=255, font=font, stroke_width=_stroke(pixels))
    mask = np.asarray(image, np.float32) / np.float32(255)
    mask.flags.writeable = False
    return mask


def _stroke(pixels: int) -> float:
    """The font has one weight, a light one; a sign's letters are bolder."""
    return pixels / 28


@lru_cache(maxsize=64)
def _backdrop(backdrop: Backdrop, seed: int, width: int, height: int) -> Picture:
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    x, y = x / np.float32(width), y / np.float32(height)
    scale = backdrop.scale
    if backdrop.pattern == "flat":
        share = np.zeros_like(x)
    elif backdrop.pattern == "slope":
        share = (x + y) / 2
    elif backdrop.pattern == "stripes":
        share = (np.floor((x + y) / scale) % 2).astype(np.float32)
    elif backdrop.pattern == "checks":
        share = ((np.floor(x / scale) + np.floor(y / scale)) % 2).astype(np.float32)
    elif backdrop.pattern == "blotches":
        coarse = np.random.default_rng([seed, 11]).random((max(round(1 / scale), 2),) * 2)
        grey = Image.fromarray((coarse * 255).astype(np.uint8))
        share = np.asarray(grey.resize((width, height), Image.Resampling.BICUBIC), np.float32) / 255
    else:
        raise ValueError(f"no pattern {backdrop.pattern!r}")
    low, high = np.array(backdrop.rgb, np.float32), np.array(backdrop.other, np.float32)
    picture: Picture = np.rint(low + (high - low) * share[..., None]).astype(np.uint8)
    picture.flags.writeable = False
    return picture


def _wander(scene: Scene, t_s: float, height: int) -> tuple[int, int]:
    """Where the shaking camera has put the picture, in pixels to the right and down."""
    reach = scene.camera.shake * height
    if not reach:
        return 0, 0
    phases = _phases(scene.seed)
    x = (math.sin(5.3 * t_s + phases[0]) + math.sin(13.1 * t_s + phases[1])) / 2
    y = (math.sin(6.1 * t_s + phases[2]) + math.sin(11.7 * t_s + phases[3])) / 2
    return round(reach * x), round(reach * y)


@lru_cache(maxsize=256)
def _phases(seed: int) -> tuple[float, ...]:
    return tuple(float(phase) for phase in np.random.default_rng([seed, 12]).random(4) * 2 * math.pi)


def _add_noise(picture: Picture, scene: Scene, t_s: float) -> None:
    """A tile of noise, put elsewhere at each moment: fresh numbers would take most of a frame's time."""
    rows, columns = picture.shape[:2]
    step = (round(t_s * 1000) * 2654435761 + scene.seed * 40503) & 0xFFFFFFFF
    top, left = step % _NOISE_SIDE, (step >> 12) % _NOISE_SIDE
    errors = _noise(scene.camera.noise, rows + _NOISE_SIDE, columns + _NOISE_SIDE)
    noisy = picture + errors[top : top + rows, left : left + columns]
    picture[:] = np.clip(noisy, 0, 255)


@lru_cache(maxsize=16)
def _noise(deviation: float, rows: int, columns: int) -> npt.NDArray[np.int16]:
    drawn = np.random.default_rng(13).standard_normal((rows, columns, 3), np.float32)
    errors: npt.NDArray[np.int16] = np.rint(drawn * np.float32(deviation)).astype(np.int16)
    return errors
