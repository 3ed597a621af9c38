"""A scene from a seed: which things come and go when, and where they are.

Two splits never share a set of kinds, a timeline or a place: whatever a scene draws, it draws again until the
split owns it (``levels.split_of``).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.scenes.levels import LATTICE, LEVELS, WORDS, Level, LevelName, Split, split_of, split_of_place
from evals.scenes.spec import COLOURS, Backdrop, Camera, Kind, Rgb, Scene, Sign, Span, Thing

Rng = np.random.Generator
_TRIES = 60
_EDGE = 0.02
_PACES = (0.6, 1.0, 1.8, 3.0)
"""Scenes are busier or quieter: what gaps are drawn out by."""
_REST_S = 3.0
"""Shortest absence of a kind between two times it is to be seen."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something is to be seen from ``from_s`` to ``to_s``: a kind of thing, or a word."""

    what: Kind | str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def inside(self) -> bool:
        return min(self.left, self.top) >= _EDGE and max(self.right, self.bottom) <= 1 - _EDGE


def make_scene(seed: int, split: Split, level_name: LevelName, length_s: float) -> Scene:
    """The scene of a seed. The same arguments give the same scene, on any machine."""
    level = LEVELS[level_name]
    rng = np.random.default_rng([seed, zlib.crc32(f"{split}/{level_name}/{length_s:g}".encode())])
    cuts = _cuts(rng, level, length_s)
    backdrops = tuple(_backdrop(rng, level, at) for at in (0.0, *cuts))
    camera = _camera(rng, level, length_s)
    name = f"{level_name}-{split}-{seed}"
    while True:
        entries = _timeline(rng, level, _theme(rng, level, split), length_s, cuts)
        # Few are left out for want of a place: what was drawn is looked at first, as placing takes time.
        if _owner(entries) != split:
            continue
        things, signs, placed = _place(rng, level, split, entries)
        if _owner(placed) == split:
            return Scene(name, seed, length_s, things, signs, backdrops, camera)


def near_misses(kind: Kind, kinds: Sequence[Kind]) -> list[Kind]:
    """Those that share its colour or its shape."""
    return [k for k in kinds if k != kind and (k.colour == kind.colour or k.shape == kind.shape)]


def _owner(entries: Sequence[Entry]) -> Split | None:
    """The split that owns both the set of kinds and the timeline; ``None``: neither split owns both."""
    kinds = tuple(sorted({entry.what for entry in entries if isinstance(entry.what, Kind)}))
    by_kinds, by_times = split_of(kinds), split_of(tuple(sorted((e.from_s, e.to_s) for e in entries)))
    return by_kinds if kinds and by_kinds == by_times else None


def _theme(rng: Rng, level: Level, split: Split) -> tuple[Kind, ...]:
    """Kinds that are easily taken for one another."""
    every = [Kind(colour, shape) for colour in level.colours for shape in level.shapes]
    while True:
        first = every[int(rng.integers(len(every)))]
        chosen = {first}
        size = int(rng.integers(level.theme[0], level.theme[1] + 1))
        while len(chosen) < size:
            close = near_misses(first, every) if rng.random() < 0.7 else every
            chosen.add(close[int(rng.integers(len(close)))])
        theme = tuple(sorted(chosen))
        if split_of(theme) == split:
            return theme


def _timeline(
    rng: Rng, level: Level, theme: tuple[Kind, ...], length_s: float, cuts: Sequence[float]
) -> list[Entry]:
    quiet = _quiet(rng, level, length_s)
    pace = _PACES[int(rng.integers(len(_PACES)))]
    gaps, sign_gaps = ((low * pace, high * pace) for low, high in (level.gaps, level.sign_gaps))
    entries: list[Entry] = []
    for _ in range(level.most):
        for span in _spans(rng, level, gaps, length_s, cuts, quiet):
            free = [k for k in theme if not _taken(k, span, entries)]
            if free:
                entries.append(Entry(free[int(rng.integers(len(free)))], *span))
    for span in _spans(rng, level, sign_gaps, length_s, cuts, quiet):
        entries.append(Entry(_word(rng, level), *span))
    return sorted(entries, key=lambda e: (e.from_s, str(e.what)))


def _taken(kind: Kind, span: Span, entries: Sequence[Entry]) -> bool:
    return any(
        e.what == kind and e.from_s - _REST_S < span[1] and span[0] < e.to_s + _REST_S for e in entries
    )


def _word(rng: Rng, level: Level) -> str:
    """One in three asks to be translated."""
    words = tuple(WORDS)[: level.words]
    foreign = rng.random() < 1 / 3
    fitting = [word for word in words if (WORDS[word][0] != "en") == foreign]
    return fitting[int(rng.integers(len(fitting)))]


def _spans(
    rng: Rng, level: Level, gaps: Span, length_s: float, cuts: Sequence[float], quiet: Span | None
) -> list[Span]:
    """When one place is taken, one span after the other."""
    spans: list[Span] = []
    at = float(rng.uniform(1, gaps[1]))
    while at < length_s - 2:
        start = _on_grain(at, level)
        end = _on_grain(start + float(rng.uniform(*level.stays)), level)
        if quiet and quiet[0] <= start < quiet[1]:
            at = quiet[1] + float(rng.uniform(0, gaps[0]))
            continue
        end = min(
            end,
            *[cut for cut in cuts if cut > start],
            *([quiet[0]] if quiet and start < quiet[0] else []),
            length_s,
        )
        if end - start >= 2:
            spans.append((start, end))
        at = end + float(rng.uniform(*gaps))
    return spans


def _on_grain(at_s: float, level: Level) -> float:
    """Where frames come each second, an event half way between two of them is on neither's edge."""
    if level.grain_s == 1.0:
        return float(np.floor(at_s)) + 0.5
    return round(round(at_s / level.grain_s) * level.grain_s, 3)


def _quiet(rng: Rng, level: Level, length_s: float) -> Span | None:
    """A long stretch of nothing."""
    if rng.random() >= level.long_gap or length_s < 60:
        return None
    long = float(rng.uniform(0.25, 0.5)) * length_s
    start = float(rng.uniform(0.2, 0.9)) * (length_s - long)
    return _on_grain(start, level), _on_grain(start + long, level)


def _cuts(rng: Rng, level: Level, length_s: float) -> list[float]:
    if not level.cut_s:
        return []
    cuts: list[float] = []
    at = float(rng.exponential(level.cut_s)) + 10
    while at < length_s - 5:
        cuts.append(_on_grain(at, level))
        at += float(rng.exponential(level.cut_s)) + 10
    return cuts


def _backdrop(rng: Rng, level: Level, from_s: float) -> Backdrop:
    """Greyish, darker or lighter: nothing of the palette drowns in it."""
    pattern = level.patterns[int(rng.integers(len(level.patterns)))]
    grey = int(rng.integers(35, 95)) if rng.random() < 0.5 else int(rng.integers(*level.light))
    low, high = (_greyish(rng, grey + step) for step in (0, int(rng.integers(10, 30))))
    return Backdrop(from_s, pattern, low, high, round(float(rng.uniform(0.06, 0.2)), 3))


def _greyish(rng: Rng, grey: int) -> Rgb:
    red, green, blue = (int(c) for c in np.clip(grey + rng.integers(-8, 9, 3), 0, 255))
    return red, green, blue


def _camera(rng: Rng, level: Level, length_s: float) -> Camera:
    noise = round(float(rng.uniform(0, level.noise)), 2)
    shake = round(float(rng.uniform(0, level.shake)), 4)
    parts = 1 if len(level.rates) == 1 else int(rng.integers(1, 4))
    starts = [round(index * length_s / parts) for index in range(parts)]
    rates = tuple((float(at), level.rates[int(rng.integers(len(level.rates)))]) for at in starts)
    return Camera(noise, shake, rates)


def _place(
    rng: Rng, level: Level, split: Split, entries: Sequence[Entry]
) -> tuple[tuple[Thing, ...], tuple[Sign, ...], list[Entry]]:
    """Give each entry a place that no other needs while it is there; the few without are left out.

    :returns: the things, the signs, and the entries that have a place
    """
    placed: list[tuple[Entry, _Box]] = []
    things: list[Thing] = []
    signs: list[Sign] = []
    for entry in entries:
        beside = [box for other, box in placed if other.from_s < entry.to_s and entry.from_s < other.to_s]
        for _ in range(_TRIES):
            if isinstance(entry.what, Kind):
                thing = _thing(rng, level, split, entry, entry.what)
                box = _thing_box(thing)
                if box.inside() and not any(box.meets(other) for other in beside):
                    things.append(thing)
                    placed.append((entry, box))
                    break
            else:
                sign = _sign(rng, level, split, entry, entry.what)
                box = _sign_box(sign)
                if box.inside() and not any(box.meets(other) for other in beside):
                    signs.append(sign)
                    placed.append((entry, box))
                    break
    return tuple(things), tuple(signs), [entry for entry, _ in placed]


def _spot(rng: Rng, split: Split) -> tuple[float, float]:
    while True:
        column, row = (int(c) for c in rng.integers(0, LATTICE, 2))
        if split_of_place(column, row) == split:
            return (column + 0.5) / LATTICE, (row + 0.5) / LATTICE


def _thing(rng: Rng, level: Level, split: Split, entry: Entry, kind: Kind) -> Thing:
    x, y = _spot(rng, split)
    path = [(entry.from_s, x, y)]
    if rng.random() < level.moving:
        to_x, to_y = _spot(rng, split)
        leg = float(rng.uniform(3, 12))
        steps = max(int((entry.to_s - entry.from_s) // leg), 1)
        ends = ((to_x, to_y), (x, y))
        path += [(round(entry.from_s + (k + 1) * leg, 3), *ends[k % 2]) for k in range(steps)]
    tint = rng.integers(-level.tint, level.tint + 1, 3)
    red, green, blue = (int(c) for c in np.clip(np.array(COLOURS[kind.colour]) + tint, 0, 255))
    turn = float(rng.integers(-25, 26)) if rng.random() < level.turned else 0.0
    size = round(float(rng.uniform(*level.sizes)), 4)
    return Thing(kind, size, tuple(path), ((entry.from_s, entry.to_s),), (red, green, blue), turn)


def _thing_box(thing: Thing) -> _Box:
    xs, ys = [x for _, x, _ in thing.path], [y for _, _, y in thing.path]
    reach = thing.size * 1.1
    return _Box(min(xs) - reach, min(ys) - reach, max(xs) + reach, max(ys) + reach)


_PLATES: tuple[tuple[Rgb, Rgb], ...] = (
    ((250, 250, 250), (20, 20, 24)),
    ((20, 20, 24), (240, 240, 236)),
    ((250, 250, 250), (24, 60, 120)),
)


def _sign(rng: Rng, level: Level, split: Split, entry: Entry, word: str) -> Sign:
    x, y = _spot(rng, split)
    ink, plate = _PLATES[int(rng.integers(len(_PLATES)))]
    size = round(float(rng.uniform(*level.letters)), 4)
    return Sign(word, size, x, y, ((entry.from_s, entry.to_s),), ink, plate)


def _sign_box(sign: Sign) -> _Box:
    """Rather too large: what the letters really take depends on the picture's size."""
    half_width = sign.size * (0.47 * len(sign.word) + 0.5)
    half_height = sign.size * 1.1
    return _Box(sign.x - half_width, sign.y - half_height, sign.x + half_width, sign.y + half_height)
