"""A conversation that outlives the model's context: a fresh session, seeded and warm, at a turn's end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from bridges.duplex_client.link import EngineEvent, Heard, ResponseCreated, ResponseDone
from orchestrator.session.commands import PlaybackAck
from orchestrator.session.events import NoticeEvent, OutputAudioDelta, OutputTranscriptDone
from orchestrator.session.events import ResponseCreated as Created
from prompts.native import Horizon, Seed
from tests.backends.native.harness import DUPLEX, Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import ScriptedLink, listen, spoken

TWO_MINUTES = replace(
    DUPLEX,
    horizon=Horizon(1440, 12.0, 64, 40, Seed.INSTRUCTIONS, 256),
)


def every_fifth(link: ScriptedLink, unit: Any) -> list[EngineEvent]:
    """It answers each fifth unit that it gets with a second of speech, and listens to all others."""
    count = len(link.units)
    if count % 5 or not any(unit.pcm):
        return [listen()]
    number = link.body["extra_body"].get("n", 0) * 1000 + count
    return [Heard(f"i{count}", f"question {count}"), *spoken(f"r{count}", (f"answer {number}. ", 1000))]


async def talk(rig: Rig, seconds: int) -> None:
    """Speak in real time, and acknowledge what was said as a player would."""
    acked: set[str] = set()
    for _ in range(seconds):
        await rig.append(1000)
        await rig.clock.advance(1)
        for event in rig.of(Created):
            if event.response_id not in acked:
                acked.add(event.response_id)
                await rig.session.submit(PlaybackAck(1000, response_id=event.response_id))
        await settle()


async def test_half_an_hour_with_a_horizon_of_two_minutes() -> None:
    links: list[ScriptedLink] = []

    def number(link: ScriptedLink) -> None:
        links.append(link)

    rig = await open_rig(TWO_MINUTES, script=every_fifth, prepare=number)
    await talk(rig, 1800)
    assert rig.codes() == []
    assert len(links) > 10
    assert {event.code for event in rig.of(NoticeEvent)} == {"rolled_over"}
    # No unit of the client was lost or doubled at any switch, and none came late by more than one.
    real = [
        (unit.end_ms, at)
        for link in links
        for unit, at in zip(link.units, link.unit_times, strict=True)
        if any(unit.pcm or b"")
    ]
    assert [end for end, _ in real] == [1000 * n for n in range(1, 1801)]
    gaps = [after[1] - before[1] for before, after in itertools.pairwise(real)]
    assert max(gaps) <= 2.0
    # Every fresh session knows what was said last, and nobody says it again.
    for link in links[1:]:
        assert "answer" in str(link.body["instructions"])
    words = [event.transcript for event in rig.of(OutputTranscriptDone)]
    assert len(words) == len(rig.of(Created))
    # At most two engine sessions at any time, all but the last really gone.
    assert all(link.closed for link in links[:-1])
    assert rig.seats.states == ["freed"] * (len(links) - 1) + ["opened"]


async def test_what_a_fresh_session_says_to_its_warm_up_is_never_heard() -> None:
    links: list[ScriptedLink] = []

    def eager(link: ScriptedLink, unit: Any) -> list[EngineEvent]:
        if not any(unit.pcm):
            return spoken("r-warm", ("I was not asked.", 1000), done=False)
        return [listen()]

    rig = await open_rig(TWO_MINUTES, script=eager, prepare=links.append)
    await talk(rig, 120)
    assert len(links) == 2
    await rig.say(ResponseDone("r-warm", "completed"))
    assert rig.of(OutputAudioDelta) == []
    assert links[1].named("cancel") == ["r-warm"]
    await rig.say(ResponseCreated("s"), *spoken("s", ("asked", 500))[1:])
    assert len(rig.of(OutputAudioDelta)) == 1
