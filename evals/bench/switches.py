"""What a switch to a fresh engine session costs the audio that goes up, in real time.

Conversations on a short horizon roll over every half a minute, in one process with a scripted engine. A unit
goes up each second; measured is how long after the one before it each reached an engine session, where the
two went to the same one and where they went to different ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from evals.bench.soak_load import spread
from orchestrator.runtime.clock import SystemClock
from prompts.native import Horizon, Seed
from tests.backends.native.harness import DUPLEX
from tests.fakes.duplex_engine import Act, DuplexEngine, Faults, Kind, Unit
from tests.native.pairs import ENGINE, Client, House, mark_of

UNIT_S = 1.0
SHORT = replace(DUPLEX, horizon=Horizon(700, 12.0, 64, 40, Seed.INSTRUCTIONS, 160))
MARKS = 400
"""Of each conversation: its units are told from those of the others by their number."""


class Answers:
    """A model that says a second of words after each stretch of speech."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def __call__(self, unit: Unit) -> Act:
        if unit.is_speech:
            self._asked.add(unit.session_id)
        if unit.is_speech or unit.session_id not in self._asked:
            return Act(Kind.LISTEN)
        self._asked.discard(unit.session_id)
        return Act(Kind.SPEAK, end=True, text="I see. ", heard="a question", audio_ms=1000, chunks=2)


async def _talk(client: Client, clock: SystemClock, first: int, count: int, start: float) -> None:
    for number in range(count):
        await clock.sleep(max(0.0, start + number * UNIT_S - clock.now()))
        await client.append(first + number, number % 6 < 3)
        await client.play()
    await clock.sleep(2 * UNIT_S)
    await client.close()


async def measure_switches(conversations: int, seconds: int) -> dict[str, Any]:
    """:param seconds: of talk, at most ``MARKS``"""
    clock = SystemClock()
    async with DuplexEngine(
        Answers(), ENGINE, clock=clock, max_sessions=2 * conversations, faults=Faults(think_ms=300)
    ) as engine:
        house = House(engine, SHORT, clock, rolls_over=True)
        clients = [await house.open(instructions="You are a guide.") for _ in range(conversations)]
        start = clock.now()
        await asyncio.gather(
            *(
                _talk(client, clock, n * MARKS, seconds, start + n * UNIT_S / conversations)
                for n, client in enumerate(clients)
            )
        )
        came = sorted(
            (mark_of(unit), unit.at, place)
            for place, session in enumerate(engine.sessions)
            for unit in session.units
            if mark_of(unit) >= 0
        )
    return result_of(came, conversations * seconds)


def result_of(came: Sequence[tuple[int, float, int]], sent: int) -> dict[str, Any]:
    """:param came: of each unit its number, when it came, and to which engine session"""
    beside = [(a, b) for a, b in pairwise(came) if b[0] == a[0] + 1 and b[0] % MARKS]
    switched = [b[1] - a[1] for a, b in beside if a[2] != b[2]]
    stayed = [b[1] - a[1] for a, b in beside if a[2] == b[2]]
    return {
        "switches": len(switched),
        "lost": sent - len(came),
        "gap_at_switch_ms": spread(switched),
        "gap_elsewhere_ms": spread(stayed),
    }
