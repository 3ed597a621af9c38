"""What an engine's lateness is: from when a tick could have been asked to when its decision is known."""

from __future__ import annotations

import asyncio

import pytest

from tests.backends.replay.harness import SILENCE, Answer, Session


async def test_a_silence_is_known_when_it_is_whole() -> None:
    async with Session([Answer(delay_s=0.4)]) as s:
        await s.frame()
        await s.clock.advance(0.4)
        assert s.place.lateness_s == [pytest.approx(0.4)]


async def test_words_are_known_by_their_first_however_many_there_are() -> None:
    gate = asyncio.Event()
    words = Answer("</response> A dog crosses the road.", delay_s=0.2, gate=gate)
    async with Session([words]) as s:
        await s.frame()
        await s.clock.advance(3.0)
        gate.set()
        await s.clock.advance(0.1)
        assert s.rows[0]["latency_ms"] >= 3000
        assert s.place.lateness_s == [pytest.approx(0.2)]


async def test_frames_that_wait_for_a_long_answer_or_for_their_phase_do_not_make_the_engine_late() -> None:
    gate = asyncio.Event()
    words = Answer("</response> A dog crosses the road.", gate=gate)
    async with Session([words, Answer(delay_s=0.1)]) as s:
        await s.frame()
        await s.frame()
        await s.clock.advance(1.5)
        gate.set()
        await s.clock.advance(0.2)
        assert s.place.lateness_s == [pytest.approx(0.0), pytest.approx(0.1)], "after a long answer"
        await s.frame(s.ms + 100)
        await s.clock.advance(1.0)
        assert len(s.rows) == 3 and s.rows[2]["latency_ms"] > 500
        assert s.place.lateness_s[2] == pytest.approx(0.1), "at the session's turn"


async def test_waiting_for_a_turn_at_the_engine_is_lateness() -> None:
    async with Session([Answer(delay_s=0.1)]) as s:
        for other in ("a", "b"):
            await s.permits.live(other)
        await s.frame()
        await s.clock.advance(0.8)
        await s.frame()  # rides along, and is younger than the turn it missed
        s.permits.done("a")
        await s.clock.advance(0.1)
        assert s.place.lateness_s == [pytest.approx(0.9)]


async def test_a_source_that_waits_for_its_answers_is_never_late() -> None:
    async with Session([Answer(SILENCE, delay_s=5.0)]) as s:
        await s.frame(lossless=True)
        await s.clock.advance(5.0)
        assert s.place.lateness_s == [0.0]
