"""Two places on an engine, no rollover: who gets in, who is refused, and when a place is free again."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.session.events import OutputTranscriptDone
from orchestrator.wire.errors import ResourceExhausted
from tests.backends.native.harness import DUPLEX
from tests.fakes.duplex_engine import Act, DuplexEngine, Kind, ScaledClock, Unit
from tests.native.pairs import ENGINE, Client, House, mark_of

SCALE = 50.0


def echo(unit: Unit) -> Act:
    """It says back which second it heard."""
    if unit.silence or not unit.is_speech:
        return Act(Kind.LISTEN)
    return Act(Kind.SPEAK, end=True, text=f"heard {mark_of(unit)}", audio_ms=400, chunks=1)


def told(client: Client) -> list[str]:
    return [event.transcript for event in client.seen if isinstance(event, OutputTranscriptDone)]


async def test_two_sessions_stay_isolated_and_a_third_waits_for_a_confirmed_place() -> None:
    clock = ScaledClock(SCALE)
    async with DuplexEngine(echo, ENGINE, clock=clock, max_sessions=2) as engine:
        house = House(engine, DUPLEX, clock, rolls_over=False)
        first, second = await asyncio.gather(house.open(), house.open())
        with pytest.raises(ResourceExhausted) as refused:
            await house.open()
        assert refused.value.code == "resource_exhausted" and refused.value.retry_after_s is not None
        assert len(engine.sessions) == 2, "the engine was never asked"

        await asyncio.gather(first.talk(0, 12), second.talk(1000, 12))
        assert told(first) == [f"heard {n}" for n in range(12)]
        assert told(second) == [f"heard {n}" for n in range(1000, 1012)]
        for session in engine.sessions:
            marks = {mark_of(unit) // 1000 for unit in session.units if unit.is_speech}
            assert len(marks) == 1

        # The engine takes its time to close: until it has said so the place is taken.
        engine.faults.close_ms = 3000
        with clock.held():
            closing = asyncio.create_task(first.close())
            await engine.until(lambda: any(session.closing for session in engine.sessions))
            with pytest.raises(ResourceExhausted):
                await house.open()
        await closing
        figures = house.pool.statistics()["a"]
        assert (figures["sessions"], figures["closing"], figures["expired"]) == (1, 0, 0)
        engine.faults.close_ms = 0

        replacement = await house.open()
        with pytest.raises(ResourceExhausted):
            await house.open()
        await asyncio.gather(replacement.talk(2000, 5), second.talk(1012, 5))
        assert told(replacement) == [f"heard {n}" for n in range(2000, 2005)]
        assert told(second)[12:] == [f"heard {n}" for n in range(1012, 1017)]
        await replacement.close()
        await second.close()
        assert engine.live == []
