"""What is right to say follows from the frames, no earlier than they show it, and nothing is left out.

Each skill is worked out here a second time, from what single frames show or from the summary's words alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from evals.scenes.asks import SKILLS, Ask, ask
from evals.scenes.levels import WORDS
from evals.scenes.skills import ASKED
from evals.scenes.spec import COLOURS, SHAPES, Backdrop, Kind, Scene, Sign, Thing
from evals.scenes.takes import HAND_OVER, MEMORY, SEE, WATCH
from evals.scenes.truth import describe, visible
from evals.scenes.wordings import WORDINGS
from tests.evals.scenes.strategies import LENGTH_S, scenes

KIND = re.compile(rf"({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})")
SIGHT = re.compile(rf"An? {KIND.pattern} (\d+)-(\d+)\.")
times = st.integers(3, int(LENGTH_S) - 12)
seeds = st.integers(0, 2**32)


def asked(scene: Scene, skill: str, from_s: int, seed: int) -> Ask:
    """The first that fits, from a moment on and round again: few moments have a foreign sign, say."""
    for step in range(int(LENGTH_S)):
        at_s = 3 + (from_s - 3 + step) % (int(LENGTH_S) - 15)
        got = ask(scene, skill, float(at_s), min(at_s + 60.0, LENGTH_S), np.random.default_rng(seed), 3)
        if got is not None:
            return got
    return reject()


def kind_of(got: Ask) -> Kind:
    named = KIND.search(got.text)
    assert named is not None
    return Kind(named[1], named[2])


def kinds(scene: Scene, second: float) -> list[Kind]:
    return [item.kind for item in visible(scene, second) if isinstance(item, Thing)]


def signs(scene: Scene, second: float) -> list[Sign]:
    return [item for item in visible(scene, second) if isinstance(item, Sign)]


def newcomers(scene: Scene, got: Ask) -> Iterator[tuple[int, Kind]]:
    """What a frame shows that the one before did not; all that the question finds is new to who asks it."""
    before: list[Kind] = []
    for second in range(int(got.at_s), int(got.until_s)):
        now = kinds(scene, second)
        yield from ((second, kind) for kind in now if kind not in before)
        before = now


@pytest.mark.parametrize("skill", SKILLS)
@given(scene=scenes(), from_s=times, seed=seeds)
def test_of_every_skill(skill, scene, from_s, seed):
    got = asked(scene, skill, from_s, seed)
    assert got.skill == skill and got.until_s == min(got.at_s + 60, LENGTH_S)
    assert got == ask(scene, skill, got.at_s, got.until_s, np.random.default_rng(seed), 3)
    assert not re.search(r"[{}]|\ba [aeiou]|\ban [^aeiou]", f"{got.text} {got.replies}")
    assert [right.start_s for right in got.rights] == sorted(right.start_s for right in got.rights)
    for right in got.rights:
        assert got.at_s <= right.start_s <= right.end_s <= got.until_s
        assert got.at_s <= right.frame < got.until_s
        assert right.reply and (right.accepted or right.judging == "any")
        if right.evidence is not None:
            assert right.evidence[0] <= max(right.start_s, right.frame)
            assert right.evidence[0] <= right.evidence[1]


@pytest.mark.parametrize("skill", ["alert", "every"])
@given(scene=scenes(), from_s=times, seed=seeds)
def test_an_alert_is_due_whenever_its_thing_is_new_and_at_no_other_time(skill, scene, from_s, seed):
    got = asked(scene, skill, from_s, seed)
    kind = kind_of(got)
    due = [second for second, new in newcomers(scene, got) if new == kind]
    assert [right.frame for right in got.rights] == due
    assert all(right.accepted == (str(kind),) for right in got.rights)
    assert skill == "every" or len(due) <= 1


@given(scenes(), times, seeds)
def test_a_match_names_each_newcomer_of_its_colour(scene, from_s, seed):
    got = asked(scene, "match", from_s, seed)
    colour = next(colour for colour in COLOURS if f" {colour}" in got.text)
    due = [(second, str(kind)) for second, kind in newcomers(scene, got) if kind.colour == colour]
    assert [(right.frame, right.accepted[0]) for right in got.rights] == due
    assert all(after - before > 1 for (before, _), (after, _) in pairwise(due))


@given(scenes(), times, seeds)
def test_a_tally_counts_from_one(scene, from_s, seed):
    got = asked(scene, "tally", from_s, seed)
    due = [second for second, kind in newcomers(scene, got) if kind == kind_of(got)]
    assert [(right.frame, right.accepted) for right in got.rights] == [
        (second, (str(n),)) for n, second in enumerate(due, 1)
    ]


@given(scenes(), times, seeds)
def test_who_leaves_was_there_and_is_there_no_more(scene, from_s, seed):
    got = asked(scene, "leave", from_s, seed)
    at_s = int(got.at_s)
    kind = kind_of(got)
    there = [kind in kinds(scene, second) for second in range(at_s, int(got.until_s))]
    assert there[0]
    gone = there.index(False) if False in there else None
    assert [right.frame for right in got.rights] == ([] if gone is None else [at_s + gone])
    assert gone is None or not any(there[gone:])


@given(scenes(), times, seeds)
def test_what_the_newest_frame_answers(scene, at_s, seed):
    for skill in ("count", "look", "read", "translate", "still", "where"):
        got = ask(scene, skill, at_s, at_s + 10, np.random.default_rng(seed))
        if got is None:
            continue
        (right,) = got.rights
        assert right.frame == at_s
        there = [str(kind) for kind in kinds(scene, at_s)]
        if skill == "count":
            assert right.accepted == (str(len(there)),)
        elif skill == "look":
            assert all(name in right.reply.lower() for name in there)
            assert all(sign.word in right.reply for sign in signs(scene, at_s))
            assert (right.reply == "Nothing.") == (not visible(scene, at_s))
        elif skill == "read":
            assert right.accepted == (signs(scene, at_s)[0].word,)
        elif skill == "translate":
            language, english = WORDS[signs(scene, at_s)[0].word]
            assert language != "en" and right.accepted == (english,)
        elif skill == "still":
            assert right.accepted == ("Yes" if str(kind_of(got)) in there else "No",)
        else:
            (thing,) = (i for i in visible(scene, at_s) if isinstance(i, Thing) and i.kind == kind_of(got))
            assert right.accepted == ("left" if thing.place(at_s)[0] < 0.5 else "right",)


@pytest.mark.parametrize("skill", MEMORY)
@given(scene=scenes(), from_s=times, seed=seeds)
def test_a_summary_is_enough_to_answer_from_memory(skill, scene, from_s, seed):
    """Whoever has the words of the summaries, and no frame, can tell."""
    got = asked(scene, skill, from_s, seed)
    at_s = int(got.at_s)
    (right,) = got.rights
    sights = [(int(a), int(b), Kind(c, s)) for c, s, a, b in SIGHT.findall(describe(scene, 0, at_s + 1))]
    if skill == "first":
        answer = str(sights[0][2])
        assert len(sights) == 1 or sights[0][0] < sights[1][0]
    elif skill == "before":
        answer = "Yes" if kind_of(got) in [kind for _, _, kind in sights] else "No"
        assert kind_of(got) not in kinds(scene, at_s)
    elif skill == "prior":
        (n,) = (n for n, (_, _, kind) in enumerate(sights) if kind == kind_of(got))
        answer = str(sights[n - 1][2])
    elif skill == "colour":
        (shape,) = {shape for shape in SHAPES if f" {shape}" in got.text}
        (answer,) = {kind.colour for _, _, kind in sights if kind.shape == shape}
    else:
        (first,) = (first for first, _, kind in sights if kind == kind_of(got))
        answer = str(first if skill == "when" else at_s - first)
    assert right.accepted[0] == answer
    if right.evidence is not None:
        assert right.evidence[1] <= at_s


@given(scenes("hard"), times, seeds)
def test_a_motion_goes_that_way(scene, from_s, seed):
    got = asked(scene, "move", from_s, seed)
    at_s = int(got.at_s)
    (thing,) = (i for i in visible(scene, at_s) if isinstance(i, Thing) and i.kind == kind_of(got))
    (x0, y0), (x1, y1) = thing.place(at_s - 2), thing.place(at_s)
    way = {"left": x1 < x0, "right": x1 > x0, "up": y1 < y0, "down": y1 > y0}
    assert way[got.rights[0].accepted[0]]


@given(scenes(), times, seeds)
def test_what_no_picture_tells_is_handed_over(scene, from_s, seed):
    got = asked(scene, "delegate", from_s, seed)
    assert [(right.kind, right.judging) for right in got.rights] == [("delegate", "any")]


@pytest.mark.parametrize("skill", ["before", "still"])
def test_yes_and_no_are_about_as_often_right(skill):
    from tests.evals.scenes.strategies import scene

    rng = np.random.default_rng(1)
    told = []
    for seed in range(20):
        for at_s in range(20, 110, 5):
            got = ask(scene(seed, "train", "plain"), skill, at_s, at_s + 10, rng)
            if got is not None:
                told.append(got.rights[0].accepted[0])
    assert 0.35 < told.count("Yes") / len(told) < 0.65


def test_every_skill_has_wordings_a_rule_and_a_group():
    assert set(SKILLS) == set(ASKED) == set(WORDINGS) == {*WATCH, *SEE, *MEMORY, *HAND_OVER}
    assert all(len(set(wordings)) == 3 for wordings in WORDINGS.values())
    everything = [wording for wordings in WORDINGS.values() for wording in wordings]
    assert len(set(everything)) == len(everything)


def test_what_a_model_is_trained_on_needs_numpy_and_pillow_alone():
    """These files run on a training machine as they are."""
    room = Path(sys.modules[ask.__module__].__file__ or "").parent
    seen: set[str] = set()
    waiting = ["asks", "takes", "render", "frames"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in ast.walk(ast.parse((room / f"{name}.py").read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for imported in names:
                if imported.startswith("evals.scenes."):
                    waiting.append(imported.removeprefix("evals.scenes."))
                else:
                    root = imported.partition(".")[0]
                    assert root in sys.stdlib_module_names or root in ("numpy", "PIL"), (name, imported)


def test_where_nothing_comes_there_is_something_to_wait_for():
    empty = Scene("s", 1, 60.0, (), (), (Backdrop(0.0, "flat", (0, 0, 0), (0, 0, 0)),))
    got = ask(empty, "alert", 5.0, 60.0, np.random.default_rng(1))
    assert got is not None and got.rights == ()
