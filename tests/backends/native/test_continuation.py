"""Silence that Vigil feeds while a response is open and the user sends nothing: paced, bounded, fenced."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bridges.duplex_client.link import AudioChunk, EngineEvent, ResponseCreated, SpokenText
from orchestrator.session.commands import Cancel
from orchestrator.session.events import ResponseDone, ResponseListen
from prompts.native import SilenceContinuation
from tests.backends.native.harness import DUPLEX, TURN, Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import RATE, ScriptedLink, tone

OURS = replace(DUPLEX, silence_continuation=SilenceContinuation.VIGIL)


def endless(link: ScriptedLink, unit: object) -> list[EngineEvent]:
    """It speaks to every unit and never ends."""
    begin: list[EngineEvent] = [ResponseCreated("r")] if len(link.units) == 1 else []
    return [*begin, AudioChunk("r", tone(500), RATE), SpokenText("r", "and ")]


def silent(rig: Rig) -> list[float]:
    return [
        at for unit, at in zip(rig.link.units, rig.link.unit_times, strict=True) if not any(unit.pcm or b"")
    ]


async def test_auto_mode_stops_after_64_units_at_the_models_own_pace() -> None:
    """Case 56, first half."""
    rig = await open_rig(OURS, script=endless)
    await rig.append(1000)
    await rig.clock.advance(80)
    times = silent(rig)
    assert len(times) == 64
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps == pytest.approx([1.0] * 63, rel=0.1)
    assert [unit.end_ms for unit in rig.link.units] == [1000 * n for n in range(1, 66)]
    types = rig.types()
    assert rig.of(ResponseListen)[-1].reason == "continuation_limit"
    assert types.index("response.listen") < types.index("response.done")
    assert [event.status for event in rig.of(ResponseDone)] == ["completed"]
    assert rig.link.named("cancel") == ["r"]


async def test_turn_mode_stops_after_8() -> None:
    """Case 56, second half."""
    profile = replace(TURN, silence_continuation=SilenceContinuation.VIGIL)

    def script(link: ScriptedLink, unit: object) -> list[EngineEvent]:
        return endless(link, unit)[-2:] if len(link.units) > 1 else []

    rig = await open_rig(profile, script=script)
    await rig.append(1000)
    await rig.commit(create=True)
    await rig.say(ResponseCreated("r"), AudioChunk("r", tone(500), RATE), SpokenText("r", "and "))
    await rig.clock.advance(20)
    assert len(silent(rig)) == 8
    assert rig.of(ResponseListen)[-1].reason == "continuation_limit"
    assert len(rig.of(ResponseDone)) == 1


async def test_real_input_takes_its_place() -> None:
    rig = await open_rig(OURS, script=endless)
    for _ in range(20):
        await rig.append(500)
        await rig.clock.advance(0.5)
    assert silent(rig) == []


async def test_a_cancel_ends_it() -> None:
    rig = await open_rig(OURS, script=endless)
    await rig.append(1000)
    await rig.clock.advance(3.5)
    fed = len(rig.link.units)
    await rig.session.submit(Cancel())
    await settle()
    await rig.clock.advance(10)
    assert len(rig.link.units) == fed


async def test_an_engine_that_feeds_itself_gets_none() -> None:
    rig = await open_rig(DUPLEX, script=endless)
    await rig.append(1000)
    await rig.clock.advance(10)
    assert len(rig.link.units) == 1
