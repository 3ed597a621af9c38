"""A grid of settings: which points it has, and what settings each has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.runs.sweep import GridError, axis_of, points_of
from orchestrator.settings import Settings

CHUNK = ("memory.chunk_frames", ("50", "100"))
KEEP = ("memory.keep", ("all", "answers", "nothing"))


def test_a_grid_is_every_combination_the_first_values_first() -> None:
    points = points_of([CHUNK, KEEP], one_by_one=False)
    assert [p.name for p in points][:3] == [
        "chunk_frames=50,keep=all",
        "chunk_frames=50,keep=answers",
        "chunk_frames=50,keep=nothing",
    ]
    assert len(points) == 6


def test_one_by_one_changes_a_single_setting_at_a_time() -> None:
    points = points_of([CHUNK, KEEP], one_by_one=True)
    assert [p.name for p in points] == [
        "chunk_frames=50,keep=all",
        "chunk_frames=100,keep=all",
        "chunk_frames=50,keep=answers",
        "chunk_frames=50,keep=nothing",
    ]


def test_a_points_settings_go_over_the_given_ones_and_leave_them_alone() -> None:
    given_flags = {"memory": {"overlap_frames": 4, "keep": "all"}, "decision": {"seed": 2}}
    point = points_of([CHUNK, KEEP], one_by_one=False)[5]
    settings = Settings(**point.over(given_flags))
    assert (settings.memory.chunk_frames, settings.memory.keep, settings.memory.overlap_frames) == (
        100,
        "nothing",
        4,
    )
    assert settings.decision.seed == 2 and given_flags["memory"]["keep"] == "all"


def test_settings_of_one_short_name_are_told_apart() -> None:
    points = points_of([("voice.model", ("a",)), ("ears.model", ("b",))], one_by_one=False)
    assert points[0].name == "voice.model=a,ears.model=b"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("memory.keep", "NAME=VALUE"),
        ("memory.keep=all,", "NAME=VALUE"),
        ("memory.forget=1,2", "no setting 'memory.forget'"),
        ("memory.keep=all,all", "twice"),
    ],
)
def test_what_cannot_be_varied_says_why(said: str, why: str) -> None:
    with pytest.raises(GridError, match=why):
        axis_of(said)


def test_an_axis_is_a_setting_and_its_values() -> None:
    assert axis_of("memory.chunk-frames = 50, 100") == CHUNK
    with pytest.raises(GridError, match="varied twice"):
        points_of([CHUNK, CHUNK], one_by_one=False)


axes = st.lists(
    st.sampled_from([CHUNK, KEEP, ("decision.threshold", ("0.3", "0.5", "0.7"))]), max_size=3, unique=True
)


@given(axes, st.booleans())
def test_points_have_names_of_their_own_fit_for_folders(axes, one_by_one) -> None:
    points = points_of(axes, one_by_one=one_by_one)
    assert len({p.name for p in points}) == len({tuple(p.changes.items()) for p in points}) == len(points)
    assert all("/" not in p.name and not p.name.startswith(".") for p in points)
    assert points[0].changes == {name: values[0] for name, values in axes}


def test_two_points_never_share_a_folder() -> None:
    with pytest.raises(GridError, match="would share the folder"):
        points_of([("persona", ("a b", "a_b"))], one_by_one=False)
    with pytest.raises(GridError, match="too long"):
        points_of([("persona", ("x" * 300, "y"))], one_by_one=False)
