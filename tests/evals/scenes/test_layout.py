"""The splits share nothing that they are said not to share; a seed is a scene."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.scenes.layout import make_scene
from evals.scenes.levels import LATTICE, LEVELS, WORDS, split_of, split_of_place
from evals.scenes.spec import COLOURS, SHAPES, Thing
from evals.scenes.truth import visible
from tests.evals.scenes.strategies import LENGTH_S, scene, scenes

SEEDS = range(40)


def kinds(one):
    return frozenset(thing.kind for thing in one.things)


def timeline(one):
    return tuple(sorted(span for item in (*one.things, *one.signs) for span in item.spans))


def cells(one):
    corners = [(x, y) for thing in one.things for _, x, y in thing.path]
    corners += [(sign.x, sign.y) for sign in one.signs]
    return {(round(x * LATTICE - 0.5), round(y * LATTICE - 0.5)) for x, y in corners}


@pytest.mark.parametrize("level", LEVELS)
def test_the_splits_share_no_set_of_kinds_no_timeline_and_no_place(level):
    train = [scene(seed, "train", level) for seed in SEEDS]
    held_out = [scene(seed, "held_out", level) for seed in SEEDS]
    for what in (kinds, timeline):
        assert not {what(one) for one in train} & {what(one) for one in held_out}
    assert not set().union(*map(cells, train)) & set().union(*map(cells, held_out))


@given(scenes())
def test_a_split_owns_what_its_scenes_hold(one):
    """So that no two scenes of any seeds, lengths or levels can meet, not only those above."""
    split = one.name.split("-")[1]
    assert split_of(tuple(sorted(kinds(one)))) == split
    assert split_of(timeline(one)) == split
    assert {split_of_place(*cell) for cell in cells(one)} == {split}


@given(st.integers(0, 2**32), st.sampled_from(("train", "held_out")))
def test_a_seed_is_a_scene(seed, split):
    assert make_scene(seed, split, "plain", 60.0) == make_scene(seed, split, "plain", 60.0)


def test_other_seeds_splits_and_lengths_are_other_scenes():
    some = [make_scene(s, p, "plain", t) for s in (1, 2) for p in ("train", "held_out") for t in (60.0, 90.0)]
    assert len({timeline(one) for one in some}) == len(some)


@pytest.mark.parametrize(
    ("level", "digest"), [("plain", 3465566829), ("varied", 2109997837), ("hard", 1583516001)]
)
def test_a_seed_means_the_same_scene_on_every_machine(level, digest):
    """What seeds mean is part of the data sets: whoever changes it raises ``frames.GENERATOR``."""
    assert zlib.crc32(make_scene(1, "held_out", level, 60.0).to_json().encode()) == digest


@given(scenes())
def test_levels_keep_their_limits(one):
    level = LEVELS[one.name.split("-")[0]]
    for thing in one.things:
        assert thing.kind.colour in level.colours and thing.kind.shape in level.shapes
        assert level.sizes[0] <= thing.size <= level.sizes[1]
        assert all(
            abs(a - b) <= level.tint for a, b in zip(thing.rgb, COLOURS[thing.kind.colour], strict=True)
        )
    for sign in one.signs:
        assert sign.word in tuple(WORDS)[: level.words]
    for item in (*one.things, *one.signs):
        for start, end in item.spans:
            assert start > 0 and start + 2 <= end <= LENGTH_S
    cuts = [backdrop.from_s for backdrop in one.backdrops[1:]]
    assert not any(start < cut < end for cut in cuts for item in one.things for start, end in item.spans)
    for second in range(int(LENGTH_S)):
        there = visible(one, second)
        named = [item.kind for item in there if isinstance(item, Thing)]
        assert len(named) <= level.most and len(set(named)) == len(named)
        assert len(there) - len(named) <= 1


@given(scenes("plain"))
def test_plain_events_lie_half_way_between_frames(one):
    ends = {LENGTH_S}
    assert all(t % 1 == 0.5 or t in ends for span in timeline(one) for t in span)


def test_scenes_are_full_of_near_misses():
    near = total = 0
    for seed in SEEDS:
        for kind in (found := kinds(scene(seed, "train", "plain"))):
            total += 1
            near += any(k != kind and (k.colour == kind.colour or k.shape == kind.shape) for k in found)
    assert near / total > 0.8


def test_there_are_long_gaps():
    longest = []
    for seed in SEEDS:
        quiet = [not visible(scene(seed, "held_out", "plain"), second) for second in range(int(LENGTH_S))]
        runs = "".join("x" if q else " " for q in quiet).split()
        longest.append(max(map(len, runs), default=0))
    assert sum(run >= 30 for run in longest) >= 5


def test_the_plain_palette_is_the_first_of_all():
    """``rights.At.strangers`` relies on it."""
    assert set(LEVELS["plain"].colours) == set(tuple(COLOURS)[:5])
    assert set(LEVELS["plain"].shapes) == set(SHAPES[:4])


@given(scenes())
def test_nothing_has_the_colour_of_what_is_behind_it(one):
    for thing in one.things:
        behind = one.backdrop(thing.spans[0][0])
        for rgb in (behind.rgb, behind.other):
            assert sum(abs(a - b) for a, b in zip(rgb, thing.rgb, strict=True)) > 60
