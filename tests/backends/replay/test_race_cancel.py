"""Race: a cancel meets a decision before, during and after its first word.

Contract: the request is aborted before the next one starts; what was shown stands, once; with nothing shown
there is no scar and no orphan answer; output keeps the fence of its start; a stale cancel releases nothing.
"""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.session.backend import (
    TextDelta,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import Conflict
from tests.backends.replay.harness import FIRST, SILENCE, Answer, Session
from tests.fakes.clock import settle


async def test_cancel_aborts_and_what_was_shown_stands_as_said() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> A long story about", gate=gate), SILENCE]) as s:
        operation = await s.frame()
        assert s.spoken
        shown = s.spoken
        await s.cancel()
        assert s.engine.decisions[0].ended == "aborted"
        fact = s.log.of("tick_answered")[0]
        assert (fact.status, fact.said, fact.text) == ("incomplete", f"</response> {shown}", shown)
        assert s.of(TurnEnd)[0].status == "incomplete" and s.of(TurnEnd)[0].fence == FIRST
        assert s.answered_by(operation) is not None
        await s.frame()
        assert s.of(TickStarted)[-1].fence == Fence(1, 0)


async def test_cancel_before_a_word_leaves_no_scar_and_no_orphan_answer() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> Hi there you", gate=gate), "</response> Next."]) as s:
        s.engine.script = [Answer(delay_s=9), "</response> Next."]
        operation = await s.frame()
        await s.cancel()
        assert s.spoken == "" and len(s.engine.decisions) == 1
        cancelled = s.answered_by(operation)
        assert cancelled is not None and cancelled.error_code == "cancelled"
        await s.clock.advance(5)
        assert len(s.engine.decisions) == 1  # nothing new: nothing is decided
        await s.frame()
        assert len(s.engine.decisions[1].uuids) == 2  # its frame still rides the next tick
        assert s.spoken == "Next."


async def test_a_cancel_that_is_not_newer_is_refused_and_releases_nothing() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> A long story", gate=gate)]) as s:
        await s.frame()
        for fence in (FIRST, Fence(0, 5)):
            with pytest.raises(Conflict):
                await s.backend.cancel(FIRST, fence)
        assert s.engine.decisions[0].ended is None
        gate.set()


async def test_bug_17_output_keeps_the_fence_of_its_start() -> None:
    """A decision that began before a barge-in never speaks under the new epoch."""
    gate = asyncio.Event()
    async with Session([Answer("</response> One two three four", gate=gate), "</response> New."]) as s:
        await s.frame()
        s.fence = Fence(0, 3)  # a later turn of the same epoch does not touch what is in flight
        await s.ask("what?")
        gate.set()
        await settle()
        fences = [d.fence for d in s.of(TextDelta)]
        assert fences[0] == FIRST and fences[-1] == Fence(0, 3)


async def test_interrupted_speech_is_told_to_the_model_on_the_next_turn() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> The story is long", gate=gate), SILENCE]) as s:
        await s.frame()
        await s.heard("The st", complete=False)  # the session tells before it cancels
        await s.cancel()
        await s.frame()
        assert "The st" in s.engine.decisions[1].text
        assert s.log.of("heard")[0].response_id == s.log.of("tick_answered")[0].response_id
