"""A model whose one response never ends rolls over in its pauses: real sockets, scaled time."""

from __future__ import annotations

import itertools
from dataclasses import replace

from orchestrator.session.events import NoticeEvent, OutputTranscriptDelta, ResponseDone
from orchestrator.wire.audio import AudioFormat, Codec
from prompts.native import Horizon, Seed
from tests.backends.native.harness import FRAMES
from tests.fakes.duplex_engine import PERSONAPLEX_LIKE, Act, DuplexEngine, Kind, ScaledClock, Unit
from tests.native.pairs import House, mark_of

SCALE = 40.0
UNITS = 2400
MINUTE = replace(FRAMES, horizon=Horizon(1000, 12.5, 0, 40, Seed.INSTRUCTIONS, 320, turn_ends=False))


class Monologue:
    """Words for a second and a half, then three seconds of silence, and no turn ever ends."""

    def __init__(self) -> None:
        self.words = 0
        self.answers: dict[str, int] = {}
        """Each word, and the client's unit on which it was said (-1: none)."""

    def __call__(self, unit: Unit) -> Act:
        place = unit.number % 60
        if place >= 20:
            return Act(Kind.SPEAK, text="", audio_ms=80, chunks=1, amplitude=0.0)
        text = ""
        if place % 4 == 0:
            text = f"word{self.words} "
            self.answers[text.strip()] = mark_of(unit)
            self.words += 1
        return Act(Kind.SPEAK, text=text, audio_ms=80, chunks=1)


async def test_it_goes_on_in_a_fresh_session_during_a_pause() -> None:
    model = Monologue()
    clock = ScaledClock(SCALE)
    async with DuplexEngine(model, PERSONAPLEX_LIKE, clock=clock, max_sessions=2) as engine:
        house = House(engine, MINUTE, clock, rolls_over=True)
        client = await house.open(
            instructions="You are kind.", input_format=AudioFormat(Codec.FLOAT32, 24000)
        )
        await client.talk(0, UNITS, silence=10**6, loses=True)
        used = [s for s in engine.sessions if any(mark_of(unit) >= 0 for unit in s.units)]
        notices = [event.code for event in client.seen if isinstance(event, NoticeEvent)]
        openings = client.facts("engine_session_opened")
        assert len(used) >= 3 and notices == ["rolled_over"] * (len(openings) - 1)

        # A switch costs one unit at the most and none is heard twice; every word was told, and told once.
        marks = [mark for s in used for unit in s.units if (mark := mark_of(unit)) >= 0]
        assert marks == sorted(set(marks)) and len(marks) >= UNITS - len(notices)
        assert all(after - before <= 2 for before, after in itertools.pairwise(marks))
        told = "".join(e.delta for e in client.seen if isinstance(e, OutputTranscriptDelta)).split()
        assert len(told) == len(set(told))
        assert {word for word, mark in model.answers.items() if mark >= 0} <= set(told)
        statuses = {event.status for event in client.seen if isinstance(event, ResponseDone)}
        assert statuses == {"completed"}

        # A fresh session knows what was heard, though its response had no end.
        for opening in openings[1:]:
            assert opening["seed"].startswith("You are kind.") and "word" in opening["seed"]
        await client.close()
        assert engine.live == []
