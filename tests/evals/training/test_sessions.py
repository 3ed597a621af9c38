"""Lessons are what the product would have sent: its own windows and requests, with right answers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from evals.scenes.layout import make_scene
from evals.scenes.truth import describe, visible
from evals.training.examples import RECALL, SKILLS, session, stirred
from evals.training.sessions import UNKNOWN, Example, Session, habits
from orchestrator.backends.replay.answer import AnswerParser
from orchestrator.backends.replay.tags import Grammar
from prompts.loader import load_pack

PACK = load_pack("standin")
GRAMMAR = Grammar(PACK.tags, PACK.control_tokens)


def played(seeds: range) -> list[Example]:
    return [example for seed in seeds for example in session(seed, PACK)[1]]


def test_every_answer_has_a_form_that_the_product_keeps_byte_for_byte() -> None:
    for example in played(range(12)):
        if example.kind != "window":
            continue
        for said in example.said:
            parser = AnswerParser(GRAMMAR, "the query")
            parser.feed(said.text)
            parser.finish()
            outcome = parser.outcome()
            assert outcome.parses and outcome.healthy, said.text


def test_each_answer_is_taught_once_and_windows_alternate_turns() -> None:
    scene, examples = session(5, PACK)
    windows = [example for example in examples if example.kind == "window"]
    assert len(windows) > 1
    assert sum(said.weight for w in windows for said in w.said) == int(scene.length_s)
    for window in windows:
        roles = [m["role"] for m in window.messages]
        assert roles[0] == "system" and all(a != b for a, b in pairwise(roles))
        assert len(window.said) == roles.count("assistant")
        assert len(window.frames) == sum(
            part["type"] == "image_url"
            for m in window.messages
            if m["role"] == "user"
            for part in m["content"]
        )


def test_sessions_of_recall_ask_through_minutes_of_notes_about_nothing_but_what_was() -> None:
    for seed in range(3):
        scene, examples = session(seed, PACK, recall=1.0)
        assert scene.length_s >= 160
        windows = [example for example in examples if example.kind == "window"]
        asked = {said.skill for window in windows for said in window.said} - {""}
        assert asked and asked <= {skill for skill, _ in RECALL}
        summaries = sum(example.kind == "summary" for example in examples)
        told = str(windows[-1].messages[:2])
        assert summaries >= 5 and told.count(" seconds>") >= 5, (
            "notes of many chunks stand before the last window"
        )
        assert session(seed, PACK, recall=0.0)[0] == session(seed, PACK)[0]


def test_notes_tell_what_the_pictures_of_their_time_show() -> None:
    seen = 0
    for seed in range(8):
        scene, examples = session(seed, PACK)
        for example in examples:
            if example.kind == "summary":
                first, last = example.frames[0], example.frames[-1]
                assert example.said[0].text == describe(scene, first, last + 1)
                seen += 1
    assert seen > 10


def test_what_no_note_tells_is_not_known() -> None:
    """Sessions that forget answer questions about former windows with ``UNKNOWN``, others never do so."""
    found = 0
    for seed in range(400, 440):
        rng = np.random.default_rng(seed)
        drawn = habits(rng, SKILLS)
        scene = make_scene(seed, "train", "plain", 90.0)
        said = [
            s.text
            for example in Session(scene, PACK, drawn, rng).play()
            for s in example.said
            if UNKNOWN in s.text
        ]
        if not drawn.forgets and drawn.persona != "silent":
            assert not said
        found += len(said)
    assert found


@pytest.mark.parametrize("seed", range(6))
def test_a_stirred_scene_shows_the_same_at_the_same_times(seed: int) -> None:
    scene = make_scene(seed, "train", "plain", 60.0)
    other = stirred(scene, np.random.default_rng(seed))
    assert other != scene
    for t in range(60):
        assert describe(scene, t, t + 1) == describe(other, t, t + 1)
        assert len(visible(scene, t)) == len(visible(other, t))
