"""A backend's end, its resumption, a reader that stops, a fault of our own."""

from __future__ import annotations

import asyncio

import pytest

from memory.store.errors import LogConflict
from memory.store.transient import TransientFrames
from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.session.backend import (
    Closed,
    Failed,
)
from orchestrator.wire.errors import Conflict, TooLarge
from tests.backends.replay.harness import SILENCE, Answer, Session
from tests.fakes.clock import settle


async def test_a_closed_session_runs_nothing_and_ends_its_stream_once() -> None:
    gate = asyncio.Event()
    s = Session([Answer("</response> A long story of", gate=gate)])
    async with s:
        await s.frame()
        await asyncio.gather(s.backend.close("one"), s.backend.close("two"))
        with pytest.raises(Conflict):
            await s.frame()
    assert [o.reason for o in s.of(Closed)] == ["one"]
    assert s.engine.decisions[0].ended == "aborted"
    assert s.log.of("tick_answered")[0].status == "incomplete"
    names = [t.get_name() for t in asyncio.all_tasks()]
    assert not [n for n in names if n in {"ticks", "prewarms", "texts"} or n.startswith("decision")]


async def test_a_reader_that_stops_bounds_the_outputs_and_close_still_works() -> None:
    async with Session(["</response> one two three four five six"], outputs_size=4, read=False) as s:
        await s.frame()
        assert s.backend.statistics()["outputs"]["most_unread"] <= 4
    assert isinstance(s.outputs[-1], Closed)


async def test_a_resumed_session_continues_the_log() -> None:
    """What was in flight has failed and leaves no scar; gate, dedup and counters go on."""
    gate = asyncio.Event()
    async with Session(["</response> Fire!", SILENCE, Answer(delay_s=100)], decide=DecideOptions()) as s:
        await s.ask("watch for fire")
        await s.run_frames(3)
        facts, frames = s.log.facts, s.frames
        assert facts[-1].kind == "tick_begun"
    async with Session(["</response> Fire!"], decide=DecideOptions(), history=facts, frames=frames) as again:
        await settle()
        assert again.log.of("tick_failed")[0].code == "restarted"
        before = [a.request.messages for a in s.engine.decisions]
        after = again.engine.decisions[0].request.messages
        assert after == before[-1]
        assert again.rows[-1]["tick"] == facts[-1].tick + 1
    gate.set()


async def test_a_fault_of_our_own_ends_this_session_with_a_word() -> None:
    async with Session() as s:
        s.backend._loop._tools.journal.memory.wants = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        await s.frame()
        failed = s.of(Failed)
        assert failed[0].fatal and failed[0].code == "internal_error"


async def test_a_log_that_cannot_be_written_ends_the_session_before_anything_is_sent() -> None:
    async with Session() as s:

        async def refuse(seq: int | None = None) -> None:
            raise LogConflict("another process writes this session")

        s.log.flush = refuse  # type: ignore[method-assign]
        await s.frame()
        assert s.engine.decisions == []
        assert s.of(Failed)[0].fatal and s.of(Failed)[0].code == "log_conflict"
    assert isinstance(s.outputs[-1], Closed)


async def test_a_frame_that_cannot_be_stored_is_refused_and_leaves_nothing() -> None:
    async with Session(frames=TransientFrames(max_bytes=4)) as s:
        with pytest.raises(TooLarge) as refused:
            await s.frame(data=b"too long")
        assert refused.value.code == "frame_too_large"
        assert s.log.of("frame_seen") == []
