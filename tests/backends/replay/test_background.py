"""Summaries, roll-ups and prewarms beside the ticks."""

from __future__ import annotations

import asyncio

import pytest

from bridges.engine import EngineDenied, EngineError, EngineServerError, EngineUnreachable
from memory.plan import Limits
from tests.backends.replay.harness import SILENCE, Answer, Asked, Session

KINDS = ("decide", "prewarm", "summary")


async def test_windows_close_are_summarised_and_switch_within_limits() -> None:
    window = Limits(chunk_frames=10, max_images=32, context_tokens=16384)
    async with Session(window=window) as s:
        await s.run_frames(80)
        assert len(s.log.of("summary_landed")) >= 5
        assert len(s.log.of("window_switched")) >= 3
        assert all(len(a.uuids) <= 32 for a in s.engine.asked)
        assert any(a.kind == "summary" for a in s.engine.asked)
        assert all(row["status"] == "completed" for row in s.rows)
        assert len(s.engine.decisions) == 80


async def test_flaw_11_a_failed_summary_is_tried_again_and_a_bad_one_is_no_summary() -> None:
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    bad: list[Answer | str] = ["</silence>", "", Answer(error=EngineServerError("500"))]
    async with Session(window=window, summaries=[*bad, "A man waits."]) as s:
        for _ in range(40):
            await s.frame()
            await s.clock.advance(1)
        reasons = [f.reason for f in s.log.of("summary_failed")]
        assert reasons[:3] == ["tags", "empty", "engine_server_error"]
        assert s.log.of("summary_landed")
        assert all(f.text == "A man waits." for f in s.log.of("summary_landed"))


@pytest.mark.parametrize("fault", [EngineUnreachable("refused"), EngineDenied("no such model")])
async def test_an_engine_that_is_not_there_costs_a_text_no_try(fault: EngineError) -> None:
    """It is written once somebody is there who can: no gap stays for the time in between."""
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    gone = [Answer(error=fault)] * 6
    async with Session(window=window, summaries=[*gone, "A man waits."]) as s:
        for _ in range(40):
            await s.frame()
            await s.clock.advance(1)
        assert not s.log.of("summary_failed") and s.log.of("summary_landed")
        assert len(s.engine.of("summary")) > 6


async def test_ticks_go_on_while_a_summary_hangs() -> None:
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    async with Session(window=window, summaries=[Answer(hang=True)]) as s:
        for _ in range(30):
            await s.frame()
            await s.clock.advance(1)
        assert max(row["latency_ms"] for row in s.rows) < 100
        assert len(s.engine.of("summary")) == 1


async def test_a_text_that_is_being_written_holds_the_place_of_no_prompt() -> None:
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    written = asyncio.Event()
    async with Session(window=window, summaries=[Answer("A man waits here.", gate=written)]) as s:
        for _ in range(14):
            await s.frame()
            await s.clock.advance(1)
        assert s.permits.statistics()["running"]["summary"] == 1 and not s.log.of("summary_landed")
        await asyncio.wait_for(s.permits.background("another", "prewarm"), 5)
        written.set()
        await s.frame()
        await s.clock.advance(1)
        assert s.log.of("summary_landed") and not s.permits.statistics()["running"]["summary"]


async def test_ticks_go_before_what_waits_for_nobody_but_not_for_ever() -> None:
    window = Limits(chunk_frames=10, max_images=32, context_tokens=16384)
    async with Session(window=window) as s:
        await s.run_frames(40)
        behind = {kind: {a.request.behind_s for a in s.engine.of(kind)} for kind in KINDS}
        assert behind["decide"] == {0.0}
        ((prewarm,), (summary,)) = behind["prewarm"], behind["summary"]
        assert 0 < prewarm < summary < 1, "less than a period"


async def test_what_comes_due_during_a_tick_starts_in_the_pause_after_it() -> None:
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    beside: list[int] = []

    def summary(asked: Asked) -> Answer:
        beside.append(s.engine.live)
        return Answer("" if len(beside) % 2 else "All quiet.", delay_s=0.3)  # a second try in the next tick

    async with Session(window=window, script=[Answer(SILENCE, delay_s=0.5)], summaries=summary) as s:
        for _ in range(40):
            await s.frame()
            for _ in range(20):
                await s.clock.advance(0.05)
        assert s.log.of("summary_failed") and s.log.of("summary_landed")
        assert len(beside) >= 6 and not any(beside)


async def test_ticks_that_come_back_to_back_wait_for_the_prewarm_that_took_one_along() -> None:
    """Each such prewarm takes longer than the tick it starts beside: the next tick would outrun it."""
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    async with Session(window=window, script=[Answer(SILENCE, delay_s=0.1)]) as s:
        s.engine.prewarms = [Answer(".", delay_s=0.15)]
        for _ in range(80):
            await s.frame(lossless=True, run=False)
            await s.clock.advance(0.1)
        await s.clock.advance(10)
        assert all(row["status"] == "completed" for row in s.rows)
        assert sum(row["frames"] for row in s.rows) == 80
        along = [(f.head, f.open_tick) for f in s.log.of("prewarmed") if f.open_tick is not None]
        switches = [f.head for f in s.log.of("window_switched") if f.window > 0]
        assert len(switches) >= 3
        for head in switches:
            assert len([tick for of, tick in along if of == head]) <= 2
