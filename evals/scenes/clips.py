"""A take as a clip of Vigil's own format: queries, slots, stretches of silence, memory probes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from evals.readers.clip import Clip, Judging, Kind, Query, Silence, Slot
from evals.scenes.asks import Ask
from evals.scenes.frames import scene_record
from evals.scenes.rights import Right
from evals.scenes.spec import Scene, Span
from evals.scenes.takes import MEMORY, Take

_SHORTEST_SILENCE_S = 3.0


def clip_of(take: Take, name: str, chunk_s: float | None = None) -> Clip:
    """:param name: the clip's id
    :param chunk_s: length of a memory chunk, to say how many boundaries lie before a question of memory
    """
    taken = take.scene.frame_times()
    queries, slots, silences = [], [], []
    for number, asked in enumerate(take.asks, 1):
        query = f"q{number}"
        queries.append(Query(id=query, at_s=asked.at_s, text=asked.text, skill=asked.skill))
        slots += [
            _slot(f"{query}.{n}", query, asked, right, taken, chunk_s)
            for n, right in enumerate(asked.rights, 1)
        ]
        silences += _silences(take.scene, asked)
    return Clip(
        id=name,
        tags=(take.level, take.split),
        scene=scene_record(take.scene),
        duration_s=take.scene.length_s,
        queries=tuple(queries),
        slots=tuple(slots),
        silences=tuple(silences),
        meta={"seed": take.seed, "level": take.level, "split": take.split},
    )


def boundaries(from_s: float, to_s: float, chunk_s: float) -> int:
    """Ends of chunks between two moments."""
    return int(to_s // chunk_s) - int(from_s // chunk_s)


def _slot(
    name: str, query: str, asked: Ask, right: Right, taken: Sequence[float], chunk_s: float | None
) -> Slot:
    """Due with the first frame that shows why, be the camera quick or slow."""
    frame = bisect_left(taken, right.start_s)
    due_s = taken[frame] if frame < len(taken) and taken[frame] <= right.end_s else right.start_s
    known_s, seen_s = right.evidence or (None, None)
    later = None
    if chunk_s and seen_s is not None and asked.skill in MEMORY:
        later = boundaries(seen_s, asked.at_s, chunk_s)
    return Slot(
        id=name,
        query=query,
        kind=Kind(right.kind),
        start_s=right.start_s,
        end_s=right.end_s,
        onset_s=due_s,
        evidence_s=known_s,
        evidence_end_s=seen_s,
        chunks_later=later,
        accepted=right.accepted,
        judging=Judging(right.judging),
    )


def _silences(scene: Scene, asked: Ask) -> list[Silence]:
    """What lies between the slots of a query, and whether anything that comes there invites a false alert."""
    edges = [asked.at_s]
    for right in asked.rights:
        edges += [right.start_s, right.end_s]
    edges.append(asked.until_s)
    free: list[Span] = [(start, end) for start, end in list(pairwise(edges))[::2]]
    return [
        Silence(start_s=start, end_s=end, why=_temptation(scene, start, end))
        for start, end in free
        if end - start >= _SHORTEST_SILENCE_S
    ]


def _temptation(scene: Scene, from_s: float, to_s: float) -> str:
    coming = [str(thing.kind) for thing in scene.things for start, _ in thing.spans if from_s <= start < to_s]
    return f"comes: {', '.join(coming)}" if coming else "nothing comes"
