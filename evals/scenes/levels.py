"""How rich a scene may be, and how the two splits differ. All limits are in one table.

``plain`` is what a model of a few million parameters is held to; ``varied`` and ``hard`` are for real ones.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

from evals.scenes.spec import COLOURS, SHAPES

Split = Literal["train", "held_out"]
LevelName = Literal["plain", "varied", "hard"]

WORDS: dict[str, tuple[str, str]] = {
    "STOP": ("en", "stop"),
    "EXIT": ("en", "exit"),
    "OPEN": ("en", "open"),
    "SALE": ("en", "sale"),
    "HELP": ("en", "help"),
    "TAXI": ("en", "taxi"),
    "BANK": ("en", "bank"),
    "SLOW": ("en", "slow"),
    "HALT": ("de", "stop"),
    "OFFEN": ("de", "open"),
    "GARE": ("fr", "station"),
    "PONT": ("fr", "bridge"),
    "AUSGANG": ("de", "exit"),
    "GEFAHR": ("de", "danger"),
    "SORTIE": ("fr", "exit"),
    "OUVERT": ("fr", "open"),
    "SALIDA": ("es", "exit"),
    "ABIERTO": ("es", "open"),
    "PUENTE": ("es", "bridge"),
    "PELIGRO": ("es", "danger"),
    "PARK": ("en", "park"),
    "FIRE": ("en", "fire"),
    "HOTEL": ("en", "hotel"),
    "METRO": ("en", "metro"),
    "CLOSED": ("en", "closed"),
    "MUSEUM": ("en", "museum"),
    "NO ENTRY": ("en", "no entry"),
    "WET PAINT": ("en", "wet paint"),
    "GATE 7": ("en", "gate 7"),
    "ROOM 12": ("en", "room 12"),
}
"""Every word of a sign: its language, and what it is in English. Levels use the first so many."""


@dataclass(frozen=True, slots=True)
class Level:
    """:param most: things at a time, signs apart
    :param words: how many of ``WORDS``
    :param theme: kinds that a scene draws from, fewest and most; near misses of one another
    :param sizes: half a thing's width, lowest and highest; ``letters``: height of a sign's
    :param stays: seconds that a thing is to be seen; ``gaps``: seconds until a place is taken again
    :param long_gap: share of scenes with a stretch in which nothing at all happens
    :param grain_s: events lie on multiples of it, half a second off where it is 1
    :param light: greys of a light backdrop; no lighter where there are white things
    :param moving: share of things that move; ``turned``: share that are turned
    :param tint: how far a thing's colour may stray from the palette's, of 255
    :param cut_s: mean time between cuts; 0: none
    :param wordings: how many of each question's wordings are used
    """

    shapes: tuple[str, ...]
    colours: tuple[str, ...]
    words: int
    most: int
    theme: tuple[int, int]
    sizes: tuple[float, float]
    letters: tuple[float, float]
    stays: tuple[float, float]
    gaps: tuple[float, float]
    sign_gaps: tuple[float, float]
    long_gap: float
    grain_s: float
    patterns: tuple[str, ...]
    light: tuple[int, int]
    moving: float
    turned: float
    tint: int
    noise: float
    shake: float
    rates: tuple[float, ...]
    cut_s: float
    wordings: int


LEVELS: dict[LevelName, Level] = {
    "plain": Level(
        shapes=("circle", "square", "triangle", "star"),
        colours=("red", "green", "blue", "yellow", "purple"),
        words=12,
        most=3,
        theme=(3, 7),
        sizes=(0.12, 0.17),
        letters=(0.11, 0.13),
        stays=(6, 30),
        gaps=(4, 30),
        sign_gaps=(10, 60),
        long_gap=0.2,
        grain_s=1.0,
        patterns=("flat",),
        light=(150, 190),
        moving=0.0,
        turned=0.0,
        tint=0,
        noise=0.0,
        shake=0.0,
        rates=(1.0,),
        cut_s=0.0,
        wordings=1,
    ),
    "varied": Level(
        shapes=SHAPES[:8],
        colours=("red", "green", "blue", "yellow", "purple", "orange", "cyan", "white"),
        words=24,
        most=3,
        theme=(3, 9),
        sizes=(0.08, 0.15),
        letters=(0.07, 0.1),
        stays=(4, 40),
        gaps=(3, 30),
        sign_gaps=(10, 60),
        long_gap=0.3,
        grain_s=0.1,
        patterns=("flat", "slope", "stripes", "blotches"),
        light=(140, 165),
        moving=0.4,
        turned=0.3,
        tint=10,
        noise=6.0,
        shake=0.008,
        rates=(1.0, 2.0, 5.0),
        cut_s=90.0,
        wordings=2,
    ),
    "hard": Level(
        shapes=SHAPES,
        colours=tuple(COLOURS),
        words=len(WORDS),
        most=5,
        theme=(4, 12),
        sizes=(0.045, 0.1),
        letters=(0.045, 0.07),
        stays=(2, 60),
        gaps=(1, 25),
        sign_gaps=(5, 45),
        long_gap=0.4,
        grain_s=0.1,
        patterns=("slope", "stripes", "checks", "blotches"),
        light=(140, 165),
        moving=0.7,
        turned=0.6,
        tint=18,
        noise=16.0,
        shake=0.025,
        rates=(1.0, 2.0, 8.0, 15.0),
        cut_s=45.0,
        wordings=3,
    ),
}

LATTICE = 16
"""Centres lie on a lattice of so many places a side; the splits take turns on it, as on a chess board."""

_HELD_OUT_SHARE = 5


def split_of(parts: object) -> Split:
    """The split that owns a combination: one in five is held out. The same on every machine."""
    return "held_out" if zlib.crc32(repr(parts).encode()) % _HELD_OUT_SHARE == 0 else "train"


def split_of_place(column: int, row: int) -> Split:
    return "held_out" if (column + row) % 2 else "train"
