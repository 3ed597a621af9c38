"""The end of a session: nothing after it, the place free only when the engine said so."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.session.commands import Close
from orchestrator.session.events import OutputAudioDelta, ResponseDone, SessionClosed, SessionExpired
from tests.backends.native.harness import DUPLEX, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import spoken


async def test_a_close_behind_appends_comes_last_and_no_audio_after_it() -> None:
    """Case 68."""
    rig = await open_rig()
    await rig.append(1000)
    await rig.say(*spoken("r", ("one", 200), done=False))
    for _ in range(3):
        await rig.append(200)
    await rig.session.submit(Close())
    await settle()
    rig.events()
    assert rig.seen[-1].type == "session.closed"
    assert [event.reason for event in rig.of(SessionClosed)] == ["client_close"]
    assert [event.status for event in rig.of(ResponseDone)] == ["cancelled"]
    assert len(rig.of(OutputAudioDelta)) == 1
    assert rig.link.named("close") == ["client_close"]
    assert rig.seats.states == ["freed"]
    assert rig.session.released


async def test_a_close_invalidates_audio_before_it_awaits_the_engine() -> None:
    rig = await open_rig()
    await rig.append(1000)
    rig.link.hold("close")
    await rig.session.submit(Close())
    await settle()
    await rig.say(*spoken("r", ("late", 200)))
    rig.link.free("close")
    await settle()
    assert rig.of(OutputAudioDelta) == []


async def test_an_engine_that_does_not_confirm_keeps_the_place_until_asked_again() -> None:
    """Case 64, its clean-up."""
    rig = await open_rig()
    rig.link.closes = False
    await rig.session.close("client_close")
    assert (rig.session.released, rig.seats.states) == (False, ["opened"])
    assert [event.reason for event in rig.of(SessionClosed)] == ["client_close"]
    rig.link.closes = True
    assert await rig.session.release()
    assert rig.seats.states == ["freed"]


async def test_an_engine_that_never_confirms_leaves_the_place_to_its_own_clock() -> None:
    rig = await open_rig()
    rig.link.closes = False
    await rig.session.close("client_close")
    assert await rig.session.release()
    assert rig.seats.states == ["lost"]


async def test_a_second_close_is_the_first_one() -> None:
    rig = await open_rig()
    await rig.session.close("client_close")
    await rig.backend.close("again")
    assert rig.link.named("close") == ["client_close"]


async def test_a_session_without_resume_ends_with_its_client() -> None:
    """Case 62, its second half."""
    rig = await open_rig(replace(DUPLEX, resume=False))
    attachment = rig.session.attach()
    attachment.leave()
    await settle()
    assert [event.reason for event in rig.of(SessionClosed)] == ["disconnect"]
    assert rig.of(SessionExpired) == []
    assert rig.seats.states == ["freed"]
