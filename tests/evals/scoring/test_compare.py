"""``vigil eval compare``: runs held against each other, paired by clip and by slot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.evals.scoring.runs import BAD, GOOD, clip, rows, write_run
from tests.evals.scoring.test_scores import scored, vigil


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Six clips, half of them bad, and six good ones, of which one failed and one has another truth."""
    base = [(clip(f"c{n}"), rows(60, BAD if n % 2 else GOOD)) for n in range(6)]
    better = [(clip(f"c{n}", event_s=12 if n else 11), rows(60, GOOD)) for n in range(6)]
    settings = {"memory": {"overlap_frames": 10, "chunk_frames": 100}, "pack": "generic"}
    other = {"memory": {"overlap_frames": 0, "chunk_frames": 100}, "pack": "generic"}
    first = write_run(tmp_path / "base", base, settings)
    second = write_run(tmp_path / "hard-cut", better, other, {"c5": "failed"})
    scored(first)
    scored(second)
    return first, second


def compared(*paths: Path) -> dict[str, Any]:
    result = vigil("compare", *paths, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = orjson.loads(result.stdout)
    return found


def test_only_clips_with_one_truth_that_both_watched_are_held_together(runs: tuple[Path, Path]) -> None:
    found = compared(*runs)
    assert (found["clips"], found["left_out"]) == (["c1", "c2", "c3", "c4"], ["c0", "c5"])
    assert found["settings"] == {"memory.overlap_frames": {"base": 10, "hard-cut": 0}}


def test_differences_are_paired(runs: tuple[Path, Path]) -> None:
    told = compared(*runs)["groups"]["all"]["accuracy"]
    # Two of four clips go from none of three slots right to all three.
    assert told["runs"]["base"]["value"] == 0.5
    change = told["changes"]["hard-cut"]
    assert change["value"] == 0.5
    assert 0 <= change["low"] < 0.5 < change["high"] <= 1


def test_slots_are_won_and_lost(runs: tuple[Path, Path]) -> None:
    first, second = runs
    won = compared(first, second)["slots"]["hard-cut"]
    assert (won["both"], len(won["won"]), won["lost"], won["neither"]) == (6, 6, [], 0)
    assert won["won"][0] == {"clip": "c1", "query": "q1", "slot": "s1", "skill": "alert", "why": "missed"}
    assert len(compared(second, first)["slots"]["base"]["lost"]) == 6


def test_every_other_run_is_held_against_the_first(runs: tuple[Path, Path], tmp_path: Path) -> None:
    third = write_run(tmp_path / "third", [(clip(f"c{n}"), rows(60, BAD)) for n in range(6)])
    scored(third)
    found = compared(*runs, third)
    assert found["clips"] == ["c1", "c2", "c3", "c4"]
    changes = found["groups"]["all"]["accuracy"]["changes"]
    assert {name: change["value"] for name, change in changes.items()} == {"hard-cut": 0.5, "third": -0.5}
    assert [len(found["slots"][name]["lost"]) for name in ("hard-cut", "third")] == [0, 6]
    text = vigil("compare", *runs, third).output
    assert "hard-cut less base" in text and "third less base" in text


def test_a_run_against_itself_does_not_differ(runs: tuple[Path, Path]) -> None:
    found = compared(runs[0], runs[0].parent / "base" / ".." / "base")
    for told in found["groups"]["all"].values():
        assert {(c["value"], c["low"], c["high"]) for c in told["changes"].values()} <= {
            (0, 0, 0),
            (0, None, None),
        }


def test_the_tables(runs: tuple[Path, Path]) -> None:
    text = vigil("compare", *runs).output
    assert "4 clips; + better, - worse than base, by a 95 % interval" in text
    assert "hard-cut less base" in text
    assert "left out, as not every run has watched them to the end" in text
    lines = vigil("compare", *runs, "--format", "markdown").output.splitlines()
    assert lines[2].startswith("| run | memory.overlap_frames | F1@1s |")
    assert lines[4].startswith("| base | 10 |")


def test_what_cannot_be_compared_is_told(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    alone = write_run(tmp_path / "alone", [(clip("z"), rows(60, GOOD))])
    result = vigil("compare", runs[0], alone)
    assert result.exit_code == 2
    assert "is not scored yet: vigil eval score" in result.output
    scored(alone)
    assert "share no clip" in vigil("compare", runs[0], alone).output
    assert vigil("compare", runs[0]).exit_code == 2
