"""Frames in turn mode: prefixes that are only listened to, the first audio, bytes that stay charged."""

from __future__ import annotations

import pytest

from bridges.duplex_client.link import EngineUnit, ResponseDone
from orchestrator.session.commands import ClearInput, CreateResponse, PlaybackAck
from orchestrator.session.events import ResponseCreated
from orchestrator.session.limits import SessionLimits
from orchestrator.wire.errors import ResourceExhausted
from tests.backends.native.harness import JPEG, TURN, Rig, open_rig
from tests.fakes.link import spoken

A, B, C = (JPEG + bytes([n]) * (40 - len(JPEG)) for n in range(3))


def shapes(units: list[EngineUnit]) -> list[tuple[tuple[bytes, ...], int]]:
    return [(unit.frames, len(unit.pcm or b"")) for unit in units]


def held(rig: Rig) -> object:
    return rig.session.statistics()["pending_input_bytes"]


@pytest.mark.parametrize("separately", [False, True])
@pytest.mark.parametrize("residue_ms", [0, 400])
async def test_two_frames_go_before_what_is_answered(separately: bool, residue_ms: int) -> None:
    """Case 23: commit with a response, and with a separate ``response.create``."""
    rig = await open_rig(TURN)
    await rig.append(0, A)
    await rig.append(0, B)
    if residue_ms:
        await rig.append(residue_ms)
    await rig.commit(create=not separately)
    if separately:
        assert rig.link.units == []
        await rig.session.submit(CreateResponse())
        await rig.clock.advance(0)
    expected = [((A,), 0), ((B,), 0)] + ([((), 32000)] if residue_ms else [])
    assert shapes(rig.link.units) == expected
    assert rig.link.named("commit") == [True]
    assert held(rig) == 0
    assert rig.backend.statistics()["input"]["bytes"] == 0
    await rig.say(*spoken("r", ("a cat", 200)))
    assert len(rig.of(ResponseCreated)) == 1


async def test_a_frame_alone_opens_a_turn() -> None:
    rig = await open_rig(TURN)
    await rig.append(0, A)
    await rig.commit(create=True)
    assert shapes(rig.link.units) == [((A,), 0)]
    assert len(rig.of(ResponseCreated)) == 1


async def test_audio_behind_frames_is_still_the_first_audio() -> None:
    rig = await open_rig(TURN)
    await rig.append(0, A)
    await rig.append(1000)
    await rig.commit(create=True)
    assert [unit.end_ms for unit in rig.link.units] == [0, 1000]


async def test_frames_that_ride_speech_keep_their_place_in_it() -> None:
    rig = await open_rig(TURN)
    for index in range(1, 11):
        await rig.append(200, *({5: (A,), 10: (B,)}.get(index, ())))
    await rig.commit(create=True)
    assert shapes(rig.link.units) == [((A,), 32000), ((B,), 32000)]


@pytest.mark.parametrize("how", ["clear", "promotion"])
async def test_frames_stay_charged_for_as_long_as_they_wait(how: str) -> None:
    """Case 65."""
    rig = await open_rig(TURN, limits=SessionLimits(max_pending_input_bytes=100))
    await rig.append(0, C)
    await rig.commit(create=True)
    await rig.say(*spoken("r", ("one", 200), done=False))
    await rig.append(0, A)
    await rig.append(0, B)
    with pytest.raises(ResourceExhausted):
        await rig.append(0, C)
    await rig.commit(create=True)
    if how == "clear":
        await rig.session.submit(ClearInput())
        await rig.clock.advance(0)
    else:
        with pytest.raises(ResourceExhausted):
            await rig.append(0, C)
        await rig.say(ResponseDone("r", "completed"))
        await rig.session.submit(PlaybackAck(200))
        await rig.clock.advance(0.1)
    assert held(rig) == 0
    await rig.append(0, C)
    await rig.session.close("client_close")
    assert held(rig) == 0
