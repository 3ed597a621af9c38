"""From seeds to what the training machine eats: tokens, pictures and labels of one session after another."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from evals.scenes.layout import make_scene
from evals.scenes.levels import LEVELS, WORDS, LevelName, Split
from evals.scenes.render import render
from evals.scenes.spec import Kind, Scene, Sign, Thing
from evals.scenes.truth import named, visible
from evals.training.sessions import SIDE, Example, Session, habits
from evals.training.tokens import Layout, Tokens
from prompts.pack import Pack

SKILLS: tuple[tuple[str, float], ...] = (
    ("alert", 6.0),
    ("every", 1.5),
    ("match", 1.2),
    ("leave", 3.0),
    ("count", 0.7),
    ("tally", 0.6),
    ("look", 0.6),
    ("read", 6.0),
    ("translate", 5.0),
    ("first", 1.5),
    ("before", 3.5),
    ("prior", 2.5),
    ("colour", 2.5),
    ("when", 2.5),
    ("ago", 1.0),
    ("still", 0.6),
    ("where", 0.8),
    ("delegate", 2.0),
)
"""What is asked, and how often."""
RECALL: tuple[tuple[str, float], ...] = (
    ("first", 1.0),
    ("before", 2.0),
    ("prior", 2.0),
    ("colour", 3.0),
    ("when", 4.0),
    ("ago", 1.5),
)
"""What a session is asked that is about nothing but what was."""
LEVEL: LevelName = "plain"
LONGEST = 3072


def names() -> tuple[str, ...]:
    """Everything a picture may show, as the training's own heads tell it."""
    level = LEVELS[LEVEL]
    kinds = [str(Kind(colour, shape)) for colour in level.colours for shape in level.shapes]
    return (*kinds, *(f"sign {word}" for word in tuple(WORDS)[: level.words]))


@dataclass(frozen=True, slots=True)
class Task:
    """One request. ``frames``: indices of its pictures; ``skills``: of its answers, empty for silences."""

    kind: str
    tokens: Tokens
    frames: npt.NDArray[np.int64]
    skills: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """One session. ``pictures``: T x 128 x 128 x 3; ``shown``: T x names."""

    pictures: npt.NDArray[np.uint8]
    shown: npt.NDArray[np.uint8]
    tasks: list[Task]


def session(
    seed: int, pack: Pack, split: Split = "train", recall: float = 0.0
) -> tuple[Scene, list[Example]]:
    """The session of a seed.

    :param recall: share of sessions that are long and asked about what was, over and over: notes of minutes
        are searched in them, where most other sessions have one or two
    """
    rng = np.random.default_rng([seed, 4])
    if np.random.default_rng([seed, 6]).random() < recall:
        scene = make_scene(seed, split, LEVEL, float(rng.choice([160, 240, 300])))
        way = replace(
            habits(rng, RECALL),
            every_s=(3, 8),
            clears=0.0,
            persona="default",
            rollup_chunks=pack.rollup_chunks,
        )
    else:
        length = float(rng.choice([30, 50, 80, 120, 180, 260], p=[0.2, 0.2, 0.2, 0.2, 0.12, 0.08]))
        scene = make_scene(seed, split, LEVEL, length)
        way = habits(rng, SKILLS)
    return scene, list(Session(scene, pack, way, rng).play())


def lesson(seed: int, pack: Pack, layout: Layout, split: Split = "train", recall: float = 0.0) -> Lesson:
    scene, requests = session(seed, pack, split, recall)
    rng = np.random.default_rng([seed, 5])
    if split == "train":
        scene = stirred(scene, rng)
    every = names()
    place = {name: index for index, name in enumerate(every)}
    times = range(int(scene.length_s))
    quality = int(rng.integers(70, 96)) if rng.random() < 0.5 else None
    pictures = np.stack([squeezed(render(scene, float(t), SIDE), quality) for t in times])
    shown = np.zeros((len(pictures), len(every)), np.uint8)
    for t in times:
        for item in visible(scene, float(t)):
            shown[t, place[named(item)]] = 1
    tasks = []
    for request in requests:
        tokens = layout.tokens(request.messages, [s.weight for s in request.said], request.kind != "window")
        if len(tokens.ids) <= LONGEST and tokens.codes.any():
            skills = tuple(said.skill for said in request.said)
            tasks.append(Task(request.kind, tokens, np.array(request.frames, np.int64), skills))
    return Lesson(pictures, shown, tasks)


Box = tuple[float, float, float, float, float, float]
REACH = 1 / 16
"""How far things are moved from the places their split has: one place of its lattice."""


def stirred(scene: Scene, rng: np.random.Generator) -> Scene:
    """The same scene with everything moved a little, so that no place of a picture is like another.

    The places of a split lie on a lattice as fine as the model's patches: a model that sees them alone knows
    things at those places of a patch, and at no others.
    """
    items: tuple[Thing | Sign, ...] = (*scene.things, *scene.signs)
    boxes = [_box(item) for item in items]
    things: list[Thing] = []
    signs: list[Sign] = []
    for index, item in enumerate(items):
        right, down = _step(boxes, index, rng)
        left, top, wide, high, start, end = boxes[index]
        boxes[index] = (left + right, top + down, wide + right, high + down, start, end)
        if isinstance(item, Thing):
            things.append(replace(item, path=tuple((t, x + right, y + down) for t, x, y in item.path)))
        else:
            signs.append(replace(item, x=item.x + right, y=item.y + down))
    return replace(scene, things=tuple(things), signs=tuple(signs))


def _step(boxes: list[Box], index: int, rng: np.random.Generator) -> tuple[float, float]:
    """Where to move a thing: within the picture, into no other thing; nowhere, if no place is found."""
    left, top, wide, high, start, end = boxes[index]
    for _ in range(6):
        right, down = (float(step) for step in rng.uniform(-REACH, REACH, 2))
        box = (left + right, top + down, wide + right, high + down, start, end)
        inside = min(box[:2]) >= 0.01 and max(box[2:4]) <= 0.99
        if inside and not any(_meets(box, other) for n, other in enumerate(boxes) if n != index):
            return right, down
    return 0.0, 0.0


def _box(item: Thing | Sign) -> Box:
    """Left, top, right, bottom, and from when to when."""
    start, end = item.spans[0][0], item.spans[-1][1]
    if isinstance(item, Thing):
        _, x, y = item.path[0]
        wide = high = item.size * 1.05
    else:
        x, y = item.x, item.y
        wide, high = item.size * (0.47 * len(item.word) + 0.5), item.size * 1.1
    return x - wide, y - high, x + wide, y + high, start, end


def _meets(one: Box, other: Box) -> bool:
    return (
        one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
        and one[4] < other[5] and other[4] < one[5]
    )  # fmt: skip


def squeezed(picture: npt.NDArray[np.uint8], quality: int | None) -> npt.NDArray[np.uint8]:
    """As a client's JPEG would show it; ``None``: without loss."""
    if quality is None:
        return picture
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer).convert("RGB"))
