"""What a scene is: things and signs at places and times, before a backdrop, through a camera.

Places are shares of the picture's width and height, from the upper left corner; sizes are shares of its
shorter side. Times are seconds of the stream. A span is half open: it is visible from its start, but not at
its end.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from typing import Any

Span = tuple[float, float]
Rgb = tuple[int, int, int]

COLOURS: dict[str, Rgb] = {
    "red": (214, 40, 40),
    "green": (40, 160, 70),
    "blue": (40, 90, 220),
    "yellow": (245, 210, 40),
    "purple": (140, 60, 190),
    "orange": (245, 130, 30),
    "cyan": (60, 205, 220),
    "pink": (250, 130, 180),
    "white": (248, 248, 248),
    "brown": (120, 72, 36),
}

SHAPES = ("circle", "square", "triangle", "star", "cross", "diamond", "ring", "heart", "hexagon", "moon")


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """What a person would call a thing: a colour and a shape."""

    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True, slots=True)
class Thing:
    """:param path: ``(t_s, x, y)``, in order: the centre goes straight from one to the next; else it rests
    :param size: half its width
    :param turn: degrees, against the clock
    """

    kind: Kind
    size: float
    path: tuple[tuple[float, float, float], ...]
    spans: tuple[Span, ...]
    rgb: Rgb
    turn: float = 0.0

    def place(self, t_s: float) -> tuple[float, float]:
        path = self.path
        after = bisect_right(path, t_s, key=lambda point: point[0])
        if after == 0:
            return path[0][1], path[0][2]
        if after == len(path):
            return path[-1][1], path[-1][2]
        (t0, x0, y0), (t1, x1, y1) = path[after - 1], path[after]
        share = (t_s - t0) / (t1 - t0)
        return x0 + share * (x1 - x0), y0 + share * (y1 - y0)


@dataclass(frozen=True, slots=True)
class Sign:
    """A word on a plate. ``size`` is the height of its letters."""

    word: str
    size: float
    x: float
    y: float
    spans: tuple[Span, ...]
    rgb: Rgb
    plate: Rgb


@dataclass(frozen=True, slots=True)
class Backdrop:
    """What is behind everything from ``from_s`` on; a change of backdrop is a cut.

    :param pattern: ``flat``, ``slope`` (one colour into the other), ``stripes``, ``checks`` or ``blotches``
    """

    from_s: float
    pattern: str
    rgb: Rgb
    other: Rgb
    scale: float = 0.125


@dataclass(frozen=True, slots=True)
class Camera:
    """:param noise: standard deviation of each pixel's error, of 255
    :param shake: how far the picture wanders, a share of its height
    :param rates: ``(from_s, frames a second)``, in order
    """

    noise: float = 0.0
    shake: float = 0.0
    rates: tuple[tuple[float, float], ...] = ((0.0, 1.0),)


@dataclass(frozen=True, slots=True)
class Scene:
    """A stream of ``length_s`` seconds. What is later in ``things`` and ``signs`` is in front."""

    name: str
    seed: int
    length_s: float
    things: tuple[Thing, ...]
    signs: tuple[Sign, ...]
    backdrops: tuple[Backdrop, ...]
    camera: Camera = field(default_factory=Camera)

    def backdrop(self, t_s: float) -> Backdrop:
        at = bisect_right(self.backdrops, t_s, key=lambda backdrop: backdrop.from_s)
        return self.backdrops[max(at - 1, 0)]

    def frame_times(self) -> list[float]:
        """When the camera takes its frames."""
        times: list[float] = []
        rates = self.camera.rates
        for index, (from_s, rate) in enumerate(rates):
            to_s = rates[index + 1][0] if index + 1 < len(rates) else self.length_s
            count = 0
            while (at := from_s + count / rate) < min(to_s, self.length_s) - 1e-9:
                times.append(at)
                count += 1
        return times

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def shown(spans: tuple[Span, ...], t_s: float) -> bool:
    return any(start <= t_s < end for start, end in spans)


def scene_from_json(text: str) -> Scene:
    """The scene that ``Scene.to_json`` wrote.

    :raises ValueError, KeyError, TypeError: it is none
    """
    raw: dict[str, Any] = json.loads(text)
    things = tuple(
        Thing(**{**one, "kind": Kind(**one["kind"]), **_tuples(one, "path", "spans", "rgb")})
        for one in raw["things"]
    )
    signs = tuple(Sign(**{**one, **_tuples(one, "spans", "rgb", "plate")}) for one in raw["signs"])
    backdrops = tuple(Backdrop(**{**one, **_tuples(one, "rgb", "other")}) for one in raw["backdrops"])
    camera = Camera(**{**raw["camera"], **_tuples(raw["camera"], "rates")})
    return Scene(**{**raw, "things": things, "signs": signs, "backdrops": backdrops, "camera": camera})


def _tuples(raw: dict[str, Any], *names: str) -> dict[str, tuple[Any, ...]]:
    return {
        name: tuple(tuple(item) if isinstance(item, list) else item for item in raw[name]) for name in names
    }
