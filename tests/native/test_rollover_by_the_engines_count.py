"""The engine's own count decides when a session rolls over; without one its units and words are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.session.events import NoticeEvent
from prompts.native import Counted
from tests.fakes.duplex_engine import DuplexEngine, ScaledClock
from tests.native.pairs import ENGINE, House, two_minutes

COUNTED = Counted("0", "num_tokens_in", "num_tokens_out", streamed=True)
SCALE = 100.0


@pytest.mark.parametrize(
    ("counted", "unit_tokens", "seconds", "switches"),
    [
        (COUNTED, 24, 75, 1),  # it fills twice as fast as the profile has it
        (COUNTED, 3, 130, 0),  # it fills four times as slowly
        (None, 24, 75, 0),  # nobody reads its count
        (None, 3, 130, 1),
    ],
)
async def test_the_context_is_what_the_engine_says(
    counted: Counted | None, unit_tokens: int, seconds: int, switches: int
) -> None:
    known = two_minutes()
    profile = replace(known, horizon=replace(known.horizon, counted=counted))
    like = replace(ENGINE, unit_tokens=unit_tokens)
    clock = ScaledClock(SCALE)
    async with DuplexEngine("every:5", like, clock=clock, max_sessions=2) as engine:
        client = await House(engine, profile, clock, rolls_over=True).open()
        await client.talk(0, seconds, silence=3)
        await client.close()
    notices = [event.code for event in client.seen if isinstance(event, NoticeEvent)]
    assert notices == ["rolled_over"] * switches
