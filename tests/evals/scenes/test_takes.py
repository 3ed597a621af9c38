from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.scenes.asks import SKILLS
from evals.scenes.clips import boundaries, clip_of
from evals.scenes.datasets import SETS, Recipe
from evals.scenes.frames import frames, scene_of, scene_record
from evals.scenes.levels import LEVELS
from evals.scenes.render import render
from evals.scenes.takes import MEMORY, SEE, WATCH, make_take

takes = st.builds(
    make_take,
    st.integers(0, 30),
    st.sampled_from(("train", "held_out")),
    st.sampled_from(tuple(LEVELS)),
    st.sampled_from((90.0, 180.0)),
    st.sampled_from((WATCH, SEE, MEMORY, SKILLS, ("first",))),
    st.sampled_from((0.0, 40.0)),
)


@settings(max_examples=60)
@given(takes)
def test_each_question_stands_until_the_next(take):
    assert take.asks and take.asks[0].at_s <= 8
    assert take.asks[-1].until_s == take.scene.length_s
    for before, after in pairwise(take.asks):
        assert before.until_s == after.at_s and before.text != after.text


@settings(max_examples=60)
@given(takes, st.sampled_from([None, 20.0, 30.0]))
def test_the_clip_of_a_take_says_what_the_take_says(take, chunk_s):
    """Spans lie within the clip, silences between the slots, and nothing is due before its evidence."""
    clip = clip_of(take, "one", chunk_s)
    assert [(q.at_s, q.text, q.skill) for q in clip.queries] == [(a.at_s, a.text, a.skill) for a in take.asks]
    assert len(clip.slots) == sum(len(asked.rights) for asked in take.asks)
    ends = {q.id: after.at_s for q, after in pairwise(clip.queries)} | {clip.queries[-1].id: clip.duration_s}
    for slot in clip.slots:
        asked = clip.query(slot.query)
        assert (
            asked.at_s <= slot.start_s <= slot.due_s <= slot.end_s <= ends[slot.query] <= take.scene.length_s
        )
        assert slot.known_s <= slot.due_s < slot.start_s + 1
        assert (slot.chunks_later is not None) == (chunk_s is not None and asked.skill in MEMORY)
    for silence in clip.silences:
        assert silence.end_s <= take.scene.length_s
        for slot in clip.slots:
            assert silence.end_s <= slot.start_s or slot.end_s <= silence.start_s
    assert scene_of(clip.scene) == take.scene


def test_memory_is_asked_across_two_boundaries():
    for seed in range(6):
        take = make_take(seed, "held_out", "plain", 240.0, MEMORY, far_s=60.0)
        clip = clip_of(take, "one", 30.0)
        probes = [slot.chunks_later for slot in clip.slots if slot.chunks_later is not None]
        assert probes and min(probes) >= 2
        assert {asked.skill for asked in take.asks} & {"first", "before"}


@given(st.floats(0, 500), st.floats(0, 500))
def test_boundaries_are_those_that_lie_between(one, other):
    from_s, to_s = sorted((one, other))
    assert boundaries(from_s, to_s, 30.0) == len([k for k in range(20) if from_s < 30 * k <= to_s])


@pytest.mark.parametrize("name", SETS)
def test_fixed_sets_are_held_out_and_ask_what_they_say(name):
    ids = set()
    for recipe in SETS[name]:
        first = next(recipe.clips())
        assert recipe.split == "held_out" and "held_out" in first.tags
        assert {query.skill for query in first.queries} <= {*recipe.skills, "alert"}
        assert first == next(recipe.clips())
        ids.add(first.id)
    assert len(ids) == len(SETS[name])


def test_two_recipes_of_a_set_use_no_seed_twice():
    for recipes in SETS.values():
        starts = sorted((recipe.seed, 2 * recipe.count) for recipe in recipes)
        assert all(seed + room <= after for (seed, room), (after, _) in pairwise(starts))


def test_clips_without_a_chance_to_ask_are_passed_over():
    recipe = Recipe("signs", 1, 4, 2.0, ("translate",))
    takes = list(recipe.takes())
    assert len(takes) == 4
    assert all(any(asked.skill == "translate" for asked in take.asks) for take in takes)
    with pytest.raises(ValueError, match="hardly ever"):
        list(Recipe("still", 1, 1, 1.0, ("move",)).takes())


@pytest.mark.parametrize(
    "recipe",
    [Recipe("x", 1, 1, 4.0, ("juggle",)), Recipe("x", 1, 1, 4.0, ()), Recipe("x", 1, 1, 1.0, ("first",))],
)
def test_a_recipe_that_can_not_be_followed_is_refused(recipe):
    with pytest.raises(ValueError):
        next(recipe.takes())


def test_a_run_is_shown_the_last_frame_that_the_camera_took():
    take = next(
        take
        for seed in range(50)
        if len((take := make_take(seed, "train", "hard", 60.0, WATCH)).scene.camera.rates) > 1
    )
    scene = take.scene
    shown = list(frames(scene_record(scene), 300, 64))
    assert [at for at, _ in shown] == list(range(0, 60_000, 300))
    for media_ms, picture in shown[::7]:
        taken = max(t for t in scene.frame_times() if t * 1000 <= media_ms + 1e-6)
        assert np.array_equal(picture, render(scene, taken, 64))


@pytest.mark.parametrize(
    "record", [{}, {"generator": 0}, {"generator": 1}, {"generator": 1, "spec": {"things": 1}}]
)
def test_a_record_that_is_no_scene_of_this_generator_is_refused(record):
    with pytest.raises(ValueError):
        scene_of(record)
