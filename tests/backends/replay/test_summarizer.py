"""Texts written by a summarizer of their own, and what the engine still does itself."""

from __future__ import annotations

import pytest

from bridges.engine import EngineError, EngineTimeout, EngineUnreachable
from memory.plan import Limits
from tests.backends.replay.harness import Answer, Session
from tests.fakes.summarizer import Writer

WINDOW = Limits(chunk_frames=6, max_images=64, context_tokens=16384, rollup_chunks=2)


async def watch(s: Session, frames: int) -> None:
    for _ in range(frames):
        await s.frame()
        await s.clock.advance(1)


async def test_it_writes_summaries_and_long_term_blocks() -> None:
    writer = Writer()
    async with Session(window=WINDOW, summarizer=writer) as s:
        await watch(s, 40)
        texts = {f.text for kind in ("summary_landed", "rollup_landed") for f in s.log.of(kind)}
        assert texts == {"From the other engine."}
        assert s.log.of("rollup_landed")
        assert max(writer.pictures) > 0
        assert min(writer.pictures) == 0
        assert s.engine.of("summary") == []


async def test_one_without_eyes_only_merges_texts() -> None:
    """Contract: with ``images`` off the engine summarises pictures and the summarizer merges texts."""
    writer = Writer(images=False)
    async with Session(window=WINDOW, summarizer=writer) as s:
        await watch(s, 40)
        assert {f.text for f in s.log.of("summary_landed")} == {"All quiet."}
        assert {f.text for f in s.log.of("rollup_landed")} == {"From the other engine."}
        assert set(writer.pictures) == {0}
        assert all(asked.uuids for asked in s.engine.of("summary"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineUnreachable("refused"), "summarizer_unreachable"),
        (EngineTimeout("late", "total"), "summarizer_timeout"),
    ],
)
async def test_after_two_failures_the_engine_writes(error: EngineError, reason: str) -> None:
    """Contract: a summarizer that fails costs the engine some work, never the session its memory."""
    writer = Writer([error])
    async with Session(window=WINDOW, summarizer=writer) as s:
        await watch(s, 20)
        assert {f.reason for f in s.log.of("summary_failed")} == {reason}
        assert {f.attempt for f in s.log.of("summary_landed")} == {3}
        assert {f.text for f in s.log.of("summary_landed")} == {"All quiet."}


async def test_a_text_that_is_none_counts_as_a_failure() -> None:
    writer = Writer(["", "</response> hm", "Fine."])
    async with Session(window=WINDOW, summarizer=writer) as s:
        await watch(s, 20)
        assert [f.reason for f in s.log.of("summary_failed")[:2]] == ["empty", "tags"]
        assert [f.text for f in s.log.of("summary_landed")][:2] == ["All quiet.", "Fine."]


async def test_at_its_last_attempt_a_text_that_is_only_too_long_is_cut() -> None:
    """Contract: a small model that can't stop is still of use."""
    writer = Writer(["It rains. Then it", "It snows. And so"], finish="length")
    async with Session(window=WINDOW, summarizer=writer) as s:
        await watch(s, 12)
        assert [(f.attempt, f.reason) for f in s.log.of("summary_failed")][:1] == [(1, "too_long")]
        assert [(f.attempt, f.text) for f in s.log.of("summary_landed")][:1] == [(2, "It snows.")]


async def test_while_it_rests_the_engine_writes_without_spending_attempts() -> None:
    writer = Writer(ready=False)
    async with Session(window=WINDOW, summarizer=writer) as s:
        await watch(s, 20)
        assert writer.asked == []
        assert {f.attempt for f in s.log.of("summary_landed")} == {1}


async def test_it_writes_while_the_engine_is_lost() -> None:
    """Contract: the two are judged apart."""
    gone = EngineUnreachable("reset")
    writer = Writer([EngineTimeout("late", "total"), "Written meanwhile."])
    async with Session(window=WINDOW, summarizer=writer) as s:
        await s.run_frames(6)
        s.engine.script, s.engine.alive = [Answer(error=gone)], False
        await s.frame()
        await s.clock.advance(10)
        assert s.log.of("engine_lost")
        assert [f.text for f in s.log.of("summary_landed")] == ["Written meanwhile."]
