"""A cancel while the first clause is being made.

Contract: the answer ends cancelled with nothing heard, no sound of it comes afterwards, the speaker is cut
off, and the next answer is spoken as if nothing had been.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speaker import ScriptedSpeaker
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker


def says(seen: Seen) -> str:
    return f" Answer {seen.tick}, and so on." if seen.continued else "<silence>"


@pytest.mark.parametrize("end", ["response.cancel", "barge_in", "output_audio_buffer.clear"])
async def test_nothing_of_it_is_heard(tmp_path: Path, end: str) -> None:
    speaker = ScriptedSpeaker()
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, speaker=speaker) as served,
        Talker(served.url, opening={}) as t,
    ):
        speaker.hold()
        await t.ask("what is there?")
        await t.send("response.create")
        await eventually(lambda: speaker.texts and speaker.texts[0])
        await t.send(end)
        done = await t.until("response.done")
        assert done["response"]["status"] == "cancelled"
        assert not any(part.get("transcript") for part in done["response"]["output"][0]["content"])
        await eventually(lambda: speaker.cut == 1)
        speaker.free()
        await t.answered()
        assert not t.of("response.output_audio.delta")
        await t.ask("and now?")
        await t.send("response.create")
        done = await t.until("response.done")
        assert done["response"]["status"] == "completed" and t.of("response.output_audio.delta")
        name = done["response"]["id"]
        assert {e["response_id"] for e in t.of("response.output_audio.delta")} == {name}
