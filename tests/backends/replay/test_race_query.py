"""Race: a query arrives while a decision is in flight, or just before the frames it came with.

Contract: it waits for that decision and fires the next at once; and it rides the tick of its own frames.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tests.backends.replay.harness import SILENCE, Answer, Session
from tests.fakes.clock import settle


async def test_a_query_mid_decision_waits_for_that_decision() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</silence> but slowly", gate=gate), SILENCE]) as s:
        await s.frame()
        await s.ask("what?", "q7")
        assert len(s.engine.decisions) == 1 and s.answered_by("q7") is None
        gate.set()
        await settle()
        assert "what?" in s.engine.decisions[1].text
        answered = s.answered_by("q7")
        assert answered is not None and answered.tick == 2


async def test_a_query_rides_the_tick_of_the_frames_sent_with_it() -> None:
    """The query is told first, then its frame is decoded: one tick shows both."""
    async with Session() as s:
        await s.ask("what is this?", run=False)
        operation = await s.frame()
        await s.clock.advance(1)
        assert len(s.engine.decisions) == 1
        assert "what is this?" in s.engine.decisions[0].text and len(s.engine.decisions[0].uuids) == 1
        assert s.answered_by("q1") is s.answered_by(operation) is not None


async def test_flaw_12_a_query_change_never_rewrites_what_was_shown() -> None:
    """Set, replaced, cleared: each is a new line at the end; all before it keeps its place."""
    async with Session() as s:
        await s.run_frames(2)
        for step in ("first?", "second?", None, "third?"):
            await (s.clear() if step is None else s.ask(step, f"q-{step}"))
            await s.frame()
        for before, after in pairwise(s.engine.decisions):
            shown = before.request.messages
            assert after.request.messages[: len(shown)] == shown
