"""A contact sheet: moments of several scenes of each level, with what the truth says of them.

``python -m evals.scenes.sheet docs/scenes.png``
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from evals.scenes.layout import make_scene
from evals.scenes.levels import LEVELS, LevelName
from evals.scenes.render import render
from evals.scenes.spec import Scene
from evals.scenes.truth import named, visible

_SIDE, _CAPTION, _GAP = 192, 48, 8
_INK, _PAPER = (60, 60, 66), (255, 255, 255)
_LENGTH_S = 120.0


def contact_sheet(seed: int = 1, columns: int = 5) -> bytes:
    """A PNG: a row a level, a scene a picture, at the fullest of its moments."""
    levels: Sequence[LevelName] = tuple(LEVELS)
    width = columns * (_SIDE + _GAP) + _GAP
    sheet = Image.new("RGB", (width, len(levels) * (_SIDE + _CAPTION + _GAP) + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    for row, level in enumerate(levels):
        for column in range(columns):
            scene = make_scene(seed + column, "held_out", level, _LENGTH_S)
            at_s = _fullest(scene)
            x, y = _GAP + column * (_SIDE + _GAP), _GAP + row * (_SIDE + _CAPTION + _GAP)
            sheet.paste(Image.fromarray(render(scene, at_s, _SIDE)), (x, y))
            words = f"{level}, {at_s:g} s: " + ", ".join(named(item) for item in visible(scene, at_s))
            for line, text in enumerate(_lines(words, font)[:3]):
                draw.text((x, y + _SIDE + 3 + 14 * line), text, fill=_INK, font=font)
    out = io.BytesIO()
    # Few colours, so that noise does not make a megabyte of it.
    sheet.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def _fullest(scene: Scene) -> float:
    return float(np.argmax([len(visible(scene, second)) for second in range(int(scene.length_s))]))


def _lines(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) > _SIDE:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(contact_sheet())
