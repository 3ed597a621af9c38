"""The shares of a prompt: never more than the whole, and useful at every size."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory.budget import LimitsTooSmall, derive
from memory.plan import Limits


@given(
    st.integers(2_000, 262_144), st.integers(1, 1000), st.integers(20, 4000), st.integers(50, 1500),
    st.integers(16, 1000), st.integers(2, 200), st.integers(0, 16), st.integers(1, 8),
)  # fmt: skip
def test_shares_fit_the_whole(context, images, turn, system, target, chunk, overlap, rollup) -> None:
    limits = Limits(
        context_tokens=context,
        max_images=images,
        chunk_frames=chunk,
        overlap_frames=overlap,
        rollup_chunks=rollup,
    )
    try:
        budget = derive(limits, system_tokens=system, turn_tokens=turn, summary_target=target)
    except LimitsTooSmall:
        assume(False)
        raise
    text = budget.history_tokens + budget.qa_tokens + budget.query_tokens
    assert system + text + budget.window_tokens <= budget.prompt_tokens
    assert budget.prompt_tokens + limits.reply_tokens < context
    assert 1 <= budget.window_frames <= images
    assert budget.window_frames == 1 or budget.window_frames * turn <= budget.window_tokens
    assert budget.overlap_frames <= min(overlap, images // 4, budget.window_frames // 4)
    assert 1 <= budget.chunk_frames <= chunk
    assert budget.overlap_frames + budget.chunk_frames <= budget.window_frames
    assert budget.frames_per_tick + budget.carry_frames <= budget.window_frames or budget.window_frames == 1
    assert budget.long_term_keep <= budget.long_term_max <= limits.long_term_max
    assert 1 <= budget.key_frames <= images
    assert budget.summary_target <= max(16, budget.summary_tokens)


def test_a_roomy_engine_gets_what_was_planned() -> None:
    limits = Limits(context_tokens=131_072, max_images=256)
    budget = derive(limits, system_tokens=400, turn_tokens=300, summary_target=300)
    assert (budget.chunk_frames, budget.overlap_frames) == (100, 8)
    assert (budget.long_term_max, budget.long_term_keep) == (20, 15)
    assert budget.summary_tokens == 450 and budget.qa_tokens == 2000


@pytest.mark.parametrize("turn", [200, 300])
@pytest.mark.parametrize(("context", "images"), [(8192, 32), (12_000, 8)])
def test_small_engines_keep_a_useful_window_and_memory(context: int, images: int, turn: int) -> None:
    limits = Limits(context_tokens=context, max_images=images)
    budget = derive(limits, system_tokens=450, turn_tokens=turn, summary_target=300)
    assert budget.window_frames >= 8 and budget.chunk_frames >= 4 and budget.overlap_frames >= 2
    assert budget.history_tokens >= 5 * budget.summary_tokens
    assert budget.long_term_max >= 4


@pytest.mark.parametrize("changes", [{"context_tokens": 1000}, {"max_images": 0}])
def test_no_room_at_all_is_said(changes: dict[str, int]) -> None:
    with pytest.raises(LimitsTooSmall, match="images"):
        derive(Limits(**changes), system_tokens=400, turn_tokens=300, summary_target=300)
