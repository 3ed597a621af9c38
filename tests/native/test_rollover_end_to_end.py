"""A conversation that outlives its model's context many times over: real sockets, scaled time."""

from __future__ import annotations

from memory.tokens import estimate
from orchestrator.session.events import NoticeEvent, OutputTranscriptDone, ResponseDone
from tests.fakes.duplex_engine import Act, DuplexEngine, Faults, Kind, ScaledClock, Unit
from tests.native.pairs import ENGINE, House, mark_of, two_minutes

SCALE = 200.0
MINUTES = 30


class Talker:
    """A model that answers whatever it was told with a second of words it has never said before."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._asked: set[str] = set()

    def __call__(self, unit: Unit) -> Act:
        if unit.is_speech:
            self._asked.add(unit.session_id)
        if unit.is_speech or unit.session_id not in self._asked:
            return Act(Kind.LISTEN)
        self._asked.discard(unit.session_id)
        words = f"remark number {len(self.said)}. "
        self.said.append(words.strip())
        return Act(
            Kind.SPEAK, end=True, text=words, heard=f"question {len(self.said)}", audio_ms=1000, chunks=2
        )


async def test_half_an_hour_on_a_horizon_of_two_minutes() -> None:
    talker = Talker()
    faults = Faults(think_ms=300)
    clock = ScaledClock(SCALE)
    async with DuplexEngine(talker, ENGINE, clock=clock, max_sessions=2, faults=faults) as engine:
        house = House(engine, two_minutes(), clock, rolls_over=True)
        client = await house.open(instructions="You are a guide.")
        await client.talk(0, MINUTES * 60, silence=3)
        await client.close()
        # One that was prepared and then left, because talk went on after its seed, heard nobody.
        sessions = [s for s in engine.sessions if any(mark_of(unit) >= 0 for unit in s.units)]

        assert len(sessions) >= 1 + MINUTES // 2
        notices = [event.code for event in client.seen if isinstance(event, NoticeEvent)]
        assert notices == ["rolled_over"] * (len(client.facts("engine_session_opened")) - 1)

        # Every second reached exactly one engine session, in order. None waited, at a switch or elsewhere:
        # each was there before time went on, or the talk would have failed.
        heard = [mark_of(unit) for session in sessions for unit in session.units]
        assert [mark for mark in heard if mark >= 0] == list(range(MINUTES * 60))

        # Each seed is bounded and holds the last words that were heard.
        openings = client.facts("engine_session_opened")
        assert len(openings) - len(sessions) in (0, 1)  # the last one may have come after the last word
        for opening, session in zip(openings[1:], sessions[1:], strict=False):
            seed = opening["seed"]
            assert session.opening.instructions == seed
            assert seed.startswith("You are a guide.") and estimate(seed) <= 320
            assert "remark number" in seed.splitlines()[-2] or "question" in seed.splitlines()[-2]

        # What the model said was said once, whole, and all of it was told.
        told = [event.transcript.strip() for event in client.seen if isinstance(event, OutputTranscriptDone)]
        assert told == talker.said
        done = [event for event in client.seen if isinstance(event, ResponseDone)]
        assert {event.status for event in done} == {"completed"}

        # Never more engine sessions than there are places, and none left at the end.
        assert house.pool.statistics()["a"]["sessions"] == house.pool.statistics()["a"]["closing"] == 0
        assert engine.live == []
