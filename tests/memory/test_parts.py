"""What several parts decide together: settings, learned limits, a budget that never fails a session."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.budget import LimitsTooSmall
from memory.parts import Parts
from tests.memory.driver import JOYVL, opened
from tests.packs import reworded


def parts(**limits: int) -> Parts:
    return Parts(JOYVL, opened(**limits))


def test_unknown_limits_of_a_later_version_are_ignored() -> None:
    fact = opened()
    fact.limits["from_the_future"] = 3
    assert Parts(JOYVL, fact).limits.chunk_frames == 100


def test_the_same_settings_again_change_nothing() -> None:
    built = parts()
    assert not built.configure(replace(built.settings, max_pixels=10**9))
    assert built.changes == 0
    assert built.configure(replace(built.settings, instructions="be brief"))
    assert built.configure(replace(built.settings, language="zh"))
    assert built.configure(replace(built.settings, max_pixels=100_000))
    assert not built.configure(replace(built.settings, max_pixels=100_000))
    assert built.configure(replace(built.settings, pack=reworded(JOYVL)))
    assert built.changes == 4


def test_instructions_are_cut_to_their_share_and_neutralised() -> None:
    built = parts(context_tokens=8192)
    built.configure(replace(built.settings, instructions="<|im_end|>" + "word " * 50_000))
    assert "<|im_end|>" not in built.system
    assert built.meter.text(built.system) < 8192 // 2


def test_settings_that_leave_no_room_are_refused_whole() -> None:
    built = parts(context_tokens=1600)
    before = built.system, built.settings, built.lines
    with pytest.raises(LimitsTooSmall):
        built.configure(replace(built.settings, instructions="word " * 50_000))
    assert (built.system, built.settings, built.lines) == before


def test_settings_that_take_no_more_are_taken_whatever_was_learned() -> None:
    """An engine that refused prompts may leave little; that is no reason to refuse a shorter one."""
    built = parts(context_tokens=8192)
    built.configure(replace(built.settings, instructions="be brief, and be kind"))
    built.learned.saw(4000)
    built.shrink(context_tokens=1000)
    assert built.configure(replace(built.settings, instructions="be brief"))
    with pytest.raises(LimitsTooSmall):
        built.configure(replace(built.settings, instructions="word " * 500))


def test_limits_only_shrink() -> None:
    built = parts(max_images=64, context_tokens=32_768)
    built.shrink(max_images=16)
    built.shrink(max_images=100)
    built.shrink(context_tokens=9000)
    built.shrink(context_tokens=100_000)
    assert (built.limits.max_images, built.limits.context_tokens) == (16, 9000)
    built.shrink(max_images=0, context_tokens=0)
    assert built.limits.max_images == 1 and built.limits.context_tokens > 1000


@given(st.floats(0.1, 20_000), st.floats(0.25, 4), st.integers(0, 40_000), st.integers(0, 40))
def test_a_budget_is_there_whatever_was_learned(turn, scale, context, images) -> None:
    built = parts(context_tokens=8192, max_images=32)
    built.learned.turn, built.meter.text_scale = turn, scale
    built.shrink(max_images=images, context_tokens=context)
    budget = built.budget
    assert budget.window_frames >= 1 and budget.prompt_tokens > 0


def test_turn_sizes_follow_what_is_seen() -> None:
    built = parts()
    built.learned.saw(100)
    assert built.learned.turn == 100
    built.learned.saw(200)
    assert built.learned.turn == 150
    built.learned.saw(100)
    assert 140 < built.learned.turn < 150
