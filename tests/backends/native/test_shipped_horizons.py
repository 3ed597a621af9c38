"""The horizons that ship leave room to talk in, and a switch is prepared well before they end."""

from __future__ import annotations

import pytest

from orchestrator.backends.native.rollover import Rollover
from prompts.native import Seed
from prompts.native_loader import native_names, native_profile
from tests.backends.native.conversations import Talk


@pytest.mark.parametrize("family", native_names())
def test_a_fresh_session_has_half_a_minute_before_the_next_one_is_prepared(family: str) -> None:
    profile = native_profile(family)
    rollover = Rollover(profile.horizon, Talk(), unit_ms=profile.audio.unit_ms, spare=True, seed="x" * 100)
    if profile.horizon.context_tokens is None or profile.horizon.seed is Seed.NONE:
        return
    full = profile.horizon.prefix_tokens + profile.horizon.seed_max_tokens
    talk_s = (rollover.context.prepare_at - full) / profile.horizon.tokens_per_second
    assert talk_s >= 30
    assert rollover.context.prepare_at < rollover.context.force_at < profile.horizon.context_tokens
