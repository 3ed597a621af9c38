"""Pixels hold what the truth says, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.scenes.layout import make_scene
from evals.scenes.render import render, thing_mask
from evals.scenes.spec import COLOURS, SHAPES, Backdrop, Camera, Kind, Scene, Sign, Thing
from evals.scenes.truth import visible
from tests.evals.scenes.strategies import LENGTH_S, scenes

SIDE = 128
FLAT = (Backdrop(0.0, "flat", (60, 60, 60), (60, 60, 60)),)
seconds = st.integers(0, int(LENGTH_S) - 1)


def blobs(mask):
    """How many pieces of at least 40 pixels a mask falls into."""
    left, found = {(int(y), int(x)) for y, x in np.argwhere(mask)}, 0
    while left:
        edge, size = [left.pop()], 0
        while edge:
            y, x = edge.pop()
            size += 1
            around = {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)} & left
            left -= around
            edge += around
        found += size >= 40
    return found


@given(scenes("plain"), seconds)
def test_as_many_pieces_of_each_colour_are_in_the_picture_as_things_of_it_are_told(scene, second):
    picture = render(scene, second, SIDE)
    told = [item.kind.colour for item in visible(scene, second) if isinstance(item, Thing)]
    for colour, rgb in COLOURS.items():
        assert blobs((picture == rgb).all(axis=2)) == told.count(colour), colour


@given(scenes(), seconds)
def test_what_is_told_to_be_there_has_its_colour_at_its_place(scene, second):
    still = replace(scene, camera=Camera(scene.camera.noise))
    picture = render(still, second, SIDE).astype(int)
    for item in visible(scene, second):
        if isinstance(item, Sign):
            continue
        mask, left, top = thing_mask(item, second, (SIDE, SIDE))
        inside = picture[top : top + mask.shape[0], left : left + mask.shape[1]][mask > 0.99]
        assert len(inside) > 8
        seen = np.median(inside, axis=0)
        nearest = min(COLOURS, key=lambda name: float(np.abs(seen - COLOURS[name]).sum()))
        assert nearest == item.kind.colour


@given(scenes(), seconds)
def test_what_is_told_is_all_that_changes_the_picture(scene, second):
    empty = replace(scene, things=(), signs=())
    same = np.array_equal(render(scene, second, 64), render(empty, second, 64))
    assert same == (not visible(scene, second))


@given(scenes(), st.floats(0, LENGTH_S - 1), st.sampled_from([64, 128, (96, 64), 448]))
def test_the_same_moment_looks_the_same_every_time(scene, t_s, size):
    first, second = render(scene, t_s, size), render(scene, t_s, size)
    width, height = (size, size) if isinstance(size, int) else size
    assert first.shape == (height, width, 3) and first.dtype == np.uint8
    assert np.array_equal(first, second)
    first[:] = 0  # whose picture it is may paint on it
    assert np.array_equal(render(scene, t_s, size), second)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_drawn_smoothly_and_about_its_place(shape):
    thing = Thing(Kind("red", shape), 0.2, ((0.0, 0.5, 0.5),), ((0.0, 1.0),), COLOURS["red"], 10.0)
    mask, left, top = thing_mask(thing, 0.0, (SIDE, SIDE))
    share = mask.sum() / (2 * 0.2 * SIDE) ** 2
    assert 0.2 < share < 1.0
    assert ((mask > 0.05) & (mask < 0.95)).sum() > 20
    rows, columns = np.nonzero(mask > 0.5)
    assert abs(left + (columns.min() + columns.max()) / 2 - SIDE / 2) < SIDE * 0.1
    assert abs(top + (rows.min() + rows.max()) / 2 - SIDE / 2) < SIDE * 0.1


@given(st.floats(-0.3, 1.3), st.floats(-0.3, 1.3))
def test_what_reaches_over_the_edge_is_cut_off(x, y):
    thing = Thing(Kind("red", "circle"), 0.2, ((0.0, x, y),), ((0.0, 1.0),), COLOURS["red"])
    sign = Sign("STOP", 0.2, x, y, ((0.0, 1.0),), (255, 255, 255), (0, 0, 0))
    assert render(Scene("s", 1, 1.0, (thing,), (sign,), FLAT), 0.0, 64).shape == (64, 64, 3)


def test_a_shaking_camera_moves_everything_alike_and_noise_differs_from_frame_to_frame():
    thing = Thing(Kind("red", "circle"), 0.1, ((0.0, 0.5, 0.5),), ((0.0, 9.0),), COLOURS["red"])
    shaken = Scene("s", 1, 9.0, (thing,), (), FLAT, Camera(shake=0.05))
    middles = []
    for t_s in (0.0, 0.4, 0.8, 1.2):
        rows, columns = np.nonzero((render(shaken, t_s, SIDE) == COLOURS["red"]).all(axis=2))
        middles.append((rows.mean(), columns.mean()))
    assert len(set(middles)) > 1
    assert all(abs(row - 64) <= 8 and abs(column - 64) <= 8 for row, column in middles)
    noisy = Scene("s", 1, 9.0, (), (), FLAT, Camera(noise=8.0))
    first, second = render(noisy, 0.0, SIDE).astype(int), render(noisy, 1.0, SIDE).astype(int)
    assert not np.array_equal(first, second)
    assert 7 < (first - 60).std() < 9


def test_a_cut_changes_what_is_behind():
    two = (*FLAT, Backdrop(5.0, "stripes", (200, 200, 200), (150, 150, 150)))
    scene = Scene("s", 1, 9.0, (), (), two)
    assert render(scene, 4.9, 32).max() == 60
    assert render(scene, 5.0, 32).min() == 150


@pytest.mark.parametrize("broken", ["shape", "pattern"])
def test_what_can_not_be_drawn_is_said(broken):
    thing = Thing(
        Kind("red", "blob" if broken == "shape" else "star"),
        0.1,
        ((0.0, 0.5, 0.5),),
        ((0.0, 9.0),),
        (1, 2, 3),
    )
    behind = Backdrop(0.0, "flat" if broken == "shape" else "waves", (0, 0, 0), (0, 0, 0))
    with pytest.raises(ValueError):
        render(Scene("s", 1, 9.0, (thing,), (), (behind,)), 0.0, 32)


@pytest.mark.parametrize("word", ["STOP", "AUSGANG", "GATE 7"])
@pytest.mark.parametrize("size", [0.06, 0.12])
def test_a_sign_is_no_larger_than_the_room_that_is_kept_for_it(word, size):
    sign = Sign(word, size, 0.5, 0.5, ((0.0, 1.0),), (255, 255, 255), (0, 0, 0))
    picture = render(Scene("s", 1, 1.0, (), (sign,), FLAT), 0.0, 448)
    rows, columns = np.nonzero((picture != 60).any(axis=2))
    assert (columns.max() - columns.min() + 1) / 448 <= 2 * size * (0.47 * len(word) + 0.5)
    assert (rows.max() - rows.min() + 1) / 448 <= 2 * size * 1.1


def test_no_things_of_one_scene_ever_touch():
    for level in ("plain", "varied", "hard"):
        scene = make_scene(3, "train", level, LENGTH_S)
        for second in range(int(LENGTH_S)):
            there = [item for item in visible(scene, second) if isinstance(item, Thing)]
            for n, one in enumerate(there):
                for other in there[n + 1 :]:
                    (x0, y0), (x1, y1) = one.place(second), other.place(second)
                    assert max(abs(x0 - x1), abs(y0 - y1)) > one.size + other.size
