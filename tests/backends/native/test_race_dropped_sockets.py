"""Race: the engine's socket breaks ten times at random points of a five-minute session.

Contract: at the client no event is lost or doubled, the ledgers are consistent, the history holds exactly
what was heard, and the engine gets every unit at most once and in order.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from orchestrator.session.events import (
    NoticeEvent,
    OutputAudioDelta,
    OutputTranscriptDelta,
    OutputTranscriptDone,
    ResponseCreated,
    ResponseDone,
)
from tests.backends.native.engine_rig import over_engine
from tests.realtime.serving import eventually

MINUTES = 5
SCALE = 40.0


@pytest.mark.parametrize("seed", [1])
async def test_ten_lost_sockets_lose_and_double_nothing(seed: int) -> None:
    dice = random.Random(seed)
    seconds = MINUTES * 60
    drops = sorted(dice.uniform(1, seconds - 10) for _ in range(10))
    async with over_engine("pattern:LLSSE", scale=SCALE) as rig:
        rig.acking = True
        engine_session = rig.engine_session
        began = rig.clock.now()
        for number in range(seconds * 2):
            while drops and drops[0] <= number / 2:
                drops.pop(0)
                rig.engine.drop(engine_session, after=dice.choice([0, 0, 1, 3]))
            await rig.append(500)
            await rig.clock.sleep(max(0.0, began + (number + 1) / 2 - rig.clock.now()))
        await eventually(lambda: rig.backend.statistics()["input"]["queued"] == 0)

        def ends() -> list[int | None]:
            return [unit.end_ms for unit in engine_session.units if not unit.silence]

        def gaps() -> int:
            return sum(len(data["units"]) for kind, data in rig.log.entries if kind == "media_gap")

        # What was written is not yet heard: a busy engine works through it. Nothing may stay missing.
        await eventually(lambda: len(ends()) + gaps() >= seconds)
        await rig.clock.sleep(5)

        def said() -> list[str]:
            return [response.text for response in engine_session.responses if response.text]

        await eventually(lambda: [event.transcript for event in rig.of(OutputTranscriptDone)] == said())
        await eventually(lambda: len(rig.of(ResponseDone)) == len(rig.of(ResponseCreated)))
        assert rig.of(NoticeEvent) == []
        assert len(rig.engine.sessions) == 1
        # The engine: every unit at most once, in order; what is missing is a gap on record.
        assert ends() == sorted(set(ends()))  # type: ignore[type-var]
        assert seconds - gaps() <= len(ends()) <= seconds
        # The client: each response once, its pairs complete.
        created = [event.response_id for event in rig.of(ResponseCreated)]
        done = [event.response_id for event in rig.of(ResponseDone)]
        assert Counter(created) == Counter(done)
        assert len(set(created)) == len(created)
        assert len(rig.of(OutputAudioDelta)) == sum(e.paired for e in rig.of(OutputTranscriptDelta))
        # The ledgers: what was generated was sent, and what was acknowledged was heard.
        for event in rig.of(ResponseDone):
            assert event.cursors.generated_ms == event.cursors.sent_ms
        await eventually(lambda: _heard(rig.log.entries) == [text.rstrip() for text in said()])


def _heard(entries: list[tuple[str, object]]) -> list[str]:
    """The last report on each response, in order."""
    latest: dict[str, str] = {}
    for kind, data in entries:
        if kind == "heard":
            latest[data["response_id"]] = data["text"]  # type: ignore[index]
    return list(latest.values())
