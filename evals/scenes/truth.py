"""What is to be seen in a scene, and when: what every answer and every summary follows from.

Frames are those of a camera that takes one each second, at 0, 1, 2 ...: a thing is *seen* from the first of
them that shows it to the last.
"""

from __future__ import annotations

import math

from evals.scenes.spec import COLOURS, SHAPES, Kind, Scene, Sign, Span, Thing, shown

Item = Thing | Sign
_COLOUR_ORDER = {name: index for index, name in enumerate(COLOURS)}
_SHAPE_ORDER = {name: index for index, name in enumerate(SHAPES)}


def named(item: Item) -> str:
    """``red circle``, ``sign STOP``"""
    return str(item.kind) if isinstance(item, Thing) else f"sign {item.word}"


def an(words: str) -> str:
    """``A red circle``, ``An orange star``"""
    return f"{'An' if words[0] in 'aeiou' else 'A'} {words}"


def introduced(item: Item) -> str:
    """``A red circle``, ``The sign STOP``"""
    return an(named(item)) if isinstance(item, Thing) else f"The {named(item)}"


def order(item: Item) -> tuple[int, int, int, str]:
    """The order in which things are told that nothing else orders: colours, shapes, then signs."""
    if isinstance(item, Thing):
        return 0, _COLOUR_ORDER[item.kind.colour], _SHAPE_ORDER[item.kind.shape], ""
    return 1, 0, 0, item.word


def visible(scene: Scene, t_s: float) -> tuple[Item, ...]:
    """What a frame taken at ``t_s`` shows, in the fixed order."""
    items: tuple[Item, ...] = (*scene.things, *scene.signs)
    return tuple(sorted((item for item in items if shown(item.spans, t_s)), key=order))


def spans_of(scene: Scene, kind: Kind) -> list[Span]:
    """When things of a kind are to be seen, in order."""
    return sorted(span for thing in scene.things if thing.kind == kind for span in thing.spans)


def first_frame(t_s: float) -> int:
    """The first frame, and so the second, that shows what begins at ``t_s``."""
    return math.ceil(t_s)


def last_frame(end_s: float) -> int:
    """The last frame that shows what ends at ``end_s``."""
    return math.ceil(end_s) - 1


def sightings(scene: Scene, from_s: float, to_s: float) -> list[tuple[int, int, Item]]:
    """What the frames in ``[from_s, to_s)`` show: first and last frame, item; in order of appearance."""
    found: list[tuple[int, int, Item]] = []
    items: tuple[Item, ...] = (*scene.things, *scene.signs)
    for item in items:
        for start, end in item.spans:
            first, last = first_frame(max(start, from_s)), last_frame(min(end, to_s))
            if first <= last:
                found.append((first, last, item))
    return sorted(found, key=lambda one: (one[0], order(one[2])))


def describe(scene: Scene, from_s: float, to_s: float) -> str:
    """The summary of a stretch of time, as a model should write it::

        summary := "Nothing." | sight (" " sight)*
        sight   := (("A " | "An ") COLOUR " " SHAPE | "The sign " WORD) " " FIRST "-" LAST "."

    Whole seconds of the stream: the first and the last frame in ``[from_s, to_s)`` that show it, in order of
    appearance, at the same second in the fixed order. What comes back is a sight of its own. Seconds stand
    behind the name: who reads from left to right and looks for a name finds them next.
    """
    told = [f"{introduced(item)} {first}-{last}." for first, last, item in sightings(scene, from_s, to_s)]
    return " ".join(told) or "Nothing."
