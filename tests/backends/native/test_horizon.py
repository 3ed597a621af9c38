"""How much of an engine session's context is used."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.native.horizon import Context, slides
from tests.backends.native.conversations import horizon


def test_audio_frames_and_output_add_to_the_prefix_and_the_seed() -> None:
    context = Context(horizon(), unit_ms=1000, seed="x" * 35)
    assert context.tokens == 110
    context.unit(1000)
    context.unit(500, 2)
    context.output(7)
    assert context.tokens == math.ceil(110 + 12 + 6 + 128 + 7)


def test_the_engines_own_count_wins_and_what_follows_is_added_to_it() -> None:
    context = Context(horizon(), unit_ms=1000)
    context.unit(60_000)
    context.counted(300)
    context.unit(1000)
    context.counted(0)
    assert (context.tokens, context.counts) == (312, 1)


def test_a_sliding_window_and_an_unknown_context_never_run_full() -> None:
    for context in (
        Context(horizon(), unit_ms=1000, unlimited=True),
        Context(horizon(context_tokens=None), unit_ms=1000),
    ):
        context.unit(10_000_000)
        assert context.fits(1_000_000) and context.tokens < context.prepare_at and context.pressure == 0
    assert slides("basic") and slides("context")
    assert not any(map(slides, ("off", "OFF", "", None, 3)))


def test_a_session_that_starts_nearly_full_uses_half_of_its_room_before_it_rolls_over() -> None:
    context = Context(horizon(prefix_tokens=1700), unit_ms=1000)
    assert 1700 < context.prepare_at < context.hurry_at < context.force_at


@given(
    st.integers(300, 100_000), st.floats(0.5, 100), st.integers(0, 2000), st.sampled_from([80, 1000]),
    st.integers(0, 20_000), st.lists(st.integers(0, 3), max_size=60),
)  # fmt: skip
def test_what_fits_and_the_answer_to_it_never_overflow(limit, rate, per_frame, unit_ms, prefix, frames):
    context = Context(
        horizon(
            context_tokens=limit, tokens_per_second=rate, tokens_per_frame=per_frame, prefix_tokens=prefix
        ),
        unit_ms=unit_ms,
    )
    for groups in frames * 4:
        if not context.fits(unit_ms, groups):
            break
        context.unit(unit_ms, groups)
        context.output(int(context.cost(unit_ms)))
        assert context.tokens <= limit + 1
    assert 0 <= context.pressure <= 1
