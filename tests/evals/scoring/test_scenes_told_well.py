"""Scenes and scores agree: who says what is right when it is, scores all; who says nothing, none of it."""

from __future__ import annotations

from typing import Any

import pytest

from evals.metrics.acts import acts_of
from evals.metrics.outcome import outcome_of
from evals.metrics.tally import Tally, tallies_of
from evals.readers.clip import Clip
from evals.scenes.clips import clip_of
from evals.scenes.takes import HAND_OVER, MEMORY, SEE, WATCH, Take, make_take

SKILLS = (*WATCH, *SEE, *MEMORY, *HAND_OVER)


def rows(take: Take, *, silent: bool) -> list[dict[str, Any]]:
    """A tick a second; the take's own replies, or silence."""
    said = {second: (ask.skill, words) for ask in take.asks for second, words in ask.replies}
    found = []
    for tick in range(int(take.scene.length_s)):
        skill, words = said.get(tick, ("", ""))
        row = {"tick": tick, "media_time_s": float(tick), "action": "silence", "chunk": tick // 30}
        if words and not silent:
            delegates = skill in HAND_OVER
            row["action"] = "delegate" if delegates else "response"
            row["question" if delegates else "text"] = words
        found.append(row)
    return found


def tallied(seed: int, level: str, *, silent: bool) -> tuple[Clip, dict[str, Tally]]:
    take = make_take(seed, "held_out", level, 180.0, SKILLS)
    clip = clip_of(take, "c", chunk_s=30.0)
    acts = acts_of(clip, rows(take, silent=silent))
    return clip, tallies_of(outcome_of(clip, acts, take.scene.length_s, {}))


@pytest.mark.parametrize("level", ["plain", "varied", "hard"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_right_scores_all(seed: int, level: str) -> None:
    clip, groups = tallied(seed, level, silent=False)
    ratios = groups["all"].ratios
    assert {"onset_f1_1s", "accuracy", "answered", "silence"} <= set(ratios)
    wrong = ("false_alerts_per_h", "repeat_rate", "extra_rate", "delay_mean")
    assert {name for name, (above, below) in ratios.items() if above != below} <= set(wrong)
    assert ratios["false_alerts_per_h"][0] == ratios["repeat_rate"][0] == ratios["extra_rate"][0] == 0
    if level == "plain":
        # Its frames come once a second, as the ticks do.
        assert groups["all"].values["delay_s"] == [0.0] * len(clip.slots)


@pytest.mark.parametrize("seed", range(2))
def test_silence_is_kept_and_answers_nothing(seed: int) -> None:
    _, groups = tallied(seed, "plain", silent=True)
    ratios = groups["all"].ratios
    assert ratios["accuracy"][0] == ratios["onset_recall_1s"][0] == ratios["false_alerts_per_h"][0] == 0
    assert ratios["silence"][0] == ratios["silence"][1]
    assert "onset_precision_1s" not in ratios
