"""A line that breaks while an answer is spoken.

Contract: whoever comes back gets every piece of its sound and of its words once, in order, and then the rest.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speaker import CHAR_MS, ScriptedSpeaker
from tests.realtime.talker import Event, Talker, resumed

STORY = "A long story, that goes on, and on, and never seems to come to an end; but then it does. "


def says(seen: Seen) -> str:
    return f" {STORY}" if seen.continued else "<silence>"


def sound(events: list[Event]) -> bytes:
    return b"".join(
        base64.b64decode(e["delta"]) for e in events if e["type"] == "response.output_audio.delta"
    )


@pytest.mark.parametrize("breaks", [1, 3])
async def test_every_piece_comes_once(tmp_path: Path, breaks: int) -> None:
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, speaker=ScriptedSpeaker(), voice={"lead_s": 1.0}) as served,
        Talker(served.url, opening={}) as first,
    ):
        await first.ask("tell me a story")
        await first.send("response.create")
        talker, seen = first, list[Event]()
        for _ in range(breaks):
            await talker.until("response.output_audio.delta")
            talker.drop()
            seen += talker.seen
            other = await resumed(served.url, talker, after=max(_seq(e) for e in seen))
            resumed_event = await other.until("session.resumed")
            other.token = resumed_event["resume_token"]
            talker = other
        await talker.until("response.done")
        seen += talker.seen
        numbers = [_seq(e) for e in seen if _seq(e)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(sound(seen)) == 48 * CHAR_MS * len(STORY.strip())
        words = [e["delta"] for e in seen if e["type"] == "response.output_audio_transcript.delta"]
        assert "".join(words) == STORY.strip()
        talker.drop()


def _seq(event: Event) -> int:
    return int(event.get("server_event_seq", 0))
