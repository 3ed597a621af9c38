"""The engine says its last words and closes at once, while we still have something to write and the reader
of our events is behind.

That nothing can be written any more does not end the reading: the last words are heard, and the end has
the engine's own reason, not that of a lost socket.
"""

from __future__ import annotations

import pytest

from bridges.duplex_client.link import EngineEvent, Heard, LinkEnded
from tests.bridges.duplex_client.linked import linked
from tests.fakes.clock import settle
from tests.fakes.duplex_engine import DuplexEngine

EVENT = "conversation.item.input_audio_transcription.completed"


@pytest.mark.parametrize("words", [4, 40, 400])
async def test_the_last_words(words: int) -> None:
    slow = {"reading": False, "event_queue": 8}
    async with DuplexEngine("listen") as engine, linked(engine, **slow) as one:
        (session,) = engine.sessions
        for number in range(words):
            session.channel.emit(EVENT, item_id="i", transcript=str(number))
        session.end("idle_ttl_expired", expired=True)
        while one.link.statistics()["events_waiting"] < min(words, 8):
            await settle()
        for number in range(20):
            if one.link.statistics()["phase"] == "live":
                await one.link.playback(f"r{number}", number, number)
            await settle()
        told: list[EngineEvent] = [event async for event in one.link.events()]
        assert told[:-1] == [Heard("i", str(number)) for number in range(words)]
        assert told[-1] == LinkEnded("idle_ttl_expired", True)
