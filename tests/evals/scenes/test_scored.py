"""Who says what a take says is right gets full marks by every measure; who is silent or rash does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evals.metrics.answers import right
from evals.scenes.clips import clip_of
from evals.scenes.levels import LevelName
from evals.scenes.takes import HAND_OVER, MEMORY, SEE, WATCH, Take, make_take
from tests.evals.scoring.runs import rows, write_run
from tests.evals.scoring.test_scores import scored

CHUNK_S = 20.0
SKILLS = (*WATCH, *SEE, *MEMORY, *HAND_OVER)
Said = Mapping[int, tuple[str, str]]


@pytest.fixture(scope="module")
def takes() -> list[Take]:
    return [make_take(seed, "held_out", "plain", 180.0, SKILLS, 2 * CHUNK_S) for seed in range(6)]


def teacher(take: Take) -> dict[int, tuple[str, str]]:
    """What a model that knows it all says, by second."""
    said = {}
    for asked in take.asks:
        for frame, words in asked.replies:
            said[frame] = ("delegate", asked.text) if asked.skill == "delegate" else ("response", words)
    return said


def scores(path: Path, takes: list[Take], said: Mapping[int, Said]) -> dict[str, Any]:
    clips = [
        (clip_of(take, f"c{n}", CHUNK_S), rows(int(take.scene.length_s), said[n], int(CHUNK_S)))
        for n, take in enumerate(takes)
    ]
    figures: dict[str, Any] = scored(write_run(path, clips))["groups"]
    return figures


def test_every_reply_of_the_teacher_is_accepted(takes: list[Take]) -> None:
    for n, take in enumerate(takes):
        clip = clip_of(take, f"c{n}")
        for asked, query in zip(take.asks, clip.queries, strict=True):
            for told, slot in zip(asked.rights, clip.slots_of(query.id), strict=True):
                assert right(slot, told.reply) is True


def test_the_teacher_gets_full_marks(tmp_path: Path, takes: list[Take]) -> None:
    figures = scores(tmp_path / "run", takes, {n: teacher(take) for n, take in enumerate(takes)})
    everything = figures["all"]
    for name in ("accuracy", "onset_f1_1s", "memory", "delegation", "silence"):
        assert everything[name]["value"] == 1.0, name
    assert everything["false_alerts_per_h"]["value"] == 0.0
    assert {name for name in figures if name.startswith("memory:")} >= {"memory:2", "memory:3"}


@pytest.mark.parametrize("level", ["varied", "hard"])
def test_full_marks_can_be_had_at_every_level(tmp_path: Path, level: LevelName) -> None:
    """Free answers are for a judge there: they are unjudged, and in no share."""
    takes = [make_take(seed, "held_out", level, 180.0, SKILLS, 2 * CHUNK_S) for seed in range(4)]
    everything = scores(tmp_path / "run", takes, {n: teacher(take) for n, take in enumerate(takes)})["all"]
    for name in ("accuracy", "onset_f1_1s", "early_silence", "memory", "delegation", "silence"):
        assert everything[name]["value"] == 1.0, name
    assert everything["false_alerts_per_h"]["value"] == 0.0


def test_who_never_speaks_is_right_about_nothing(tmp_path: Path, takes: list[Take]) -> None:
    everything = scores(tmp_path / "run", takes, {n: {} for n in range(len(takes))})["all"]
    assert everything["accuracy"]["value"] == 0.0
    assert everything["false_alerts_per_h"]["value"] == 0.0


def test_who_takes_near_misses_for_it_is_found_out(tmp_path: Path, takes: list[Take]) -> None:
    """At every newcomer it says what was asked for."""
    rash = {}
    for n, take in enumerate(takes):
        said = teacher(take)
        for asked in take.asks:
            if asked.skill in ("alert", "every"):
                comes = [t for thing in take.scene.things for t, _ in thing.spans]
                said |= {
                    int(t + 1): ("response", "There!") for t in comes if asked.at_s <= t < asked.until_s - 1
                }
        rash[n] = said
    everything = scores(tmp_path / "run", takes, rash)["all"]
    assert everything["false_alerts_per_h"]["value"] > 10
