"""Race: a cancel against audio that is queued, held for its words, or still on its way from the engine.

Contract: the fence moves first; from then on not one byte of the old epoch reaches the client, however long
the engine takes to end. A second cancel or a late terminal changes nothing; another session is not delayed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridges.duplex_client.link import AudioChunk, ResponseCreated, ResponseDone, SpokenText
from orchestrator.session.commands import Cancel, ClearOutput, PlaybackAck
from orchestrator.session.events import OutputAudioDelta, OutputCleared
from orchestrator.session.events import ResponseDone as Done
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import Conflict
from tests.backends.native.harness import DUPLEX, TURN, Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import RATE, spoken, tone

FIRST = "resp-duplex-1-0-00000000"


async def speaking(*, slow: bool = False, **arguments: object) -> Rig:
    rig = await open_rig(**arguments)  # type: ignore[arg-type]
    await rig.append(1000)
    await rig.say(*spoken("r", ("one ", 200), ("two ", 200), done=False))
    rig.link.cancels_at_once = not slow
    return rig


async def cancel(rig: Rig, response_id: str | None = None) -> None:
    await rig.session.submit(Cancel(response_id))
    await settle()


async def test_nothing_of_the_old_epoch_follows_a_cancel() -> None:
    rig = await speaking(slow=True)
    rig.link.emit(AudioChunk("r", tone(200), RATE))  # held for its words
    await settle()
    before = len(rig.of(OutputAudioDelta))
    await cancel(rig)
    await rig.say(SpokenText("r", "three"), AudioChunk("r", tone(200), RATE), SpokenText("r", "four"))
    await rig.clock.advance(1)
    await rig.say(ResponseDone("r", "cancelled"))
    await rig.clock.advance(1)
    assert len(rig.of(OutputAudioDelta)) == before
    assert [event.status for event in rig.of(Done)] == ["cancelled"]
    assert rig.link.named("cancel") == ["r"]


async def test_the_ending_waits_for_the_engine_and_no_longer_than_it_may() -> None:
    rig = await speaking(slow=True)
    await cancel(rig)
    assert rig.of(Done) == []
    await rig.clock.advance(5.1)
    assert [event.status for event in rig.of(Done)] == ["cancelled"]
    await rig.say(AudioChunk("r", tone(200), RATE), SpokenText("r", "x"), ResponseDone("r", "cancelled"))
    await rig.clock.advance(1)
    assert len(rig.of(OutputAudioDelta)) == 2
    await rig.say(*spoken("s", ("new", 100)))
    assert [event.status for event in rig.of(Done)] == ["cancelled", "completed"]


async def test_two_draining_and_one_active_end_cancelled_each_under_its_own_id() -> None:
    """Case 55."""
    rig = await open_rig(replace(DUPLEX, concurrent_turns=True))
    await rig.append(1000)
    for name in ("r", "s", "t"):
        await rig.say(*spoken(name, (name, 200), done=False))
    rig.link.cancels_at_once = False
    await cancel(rig)
    for name in ("r", "s", "t"):
        rig.link.emit(AudioChunk(name, tone(100), RATE), SpokenText(name, "late"))
    await rig.clock.advance(2)
    await rig.say(*(ResponseDone(name, "cancelled") for name in ("r", "s", "t")))
    assert rig.link.named("cancel") == ["r", "s", "t"]
    assert [event.status for event in rig.of(Done)] == ["cancelled"] * 3
    assert len({event.response_id for event in rig.of(Done)}) == 3
    assert len(rig.of(OutputAudioDelta)) == 3


async def test_a_cancel_when_nothing_runs() -> None:
    """Case 52."""
    rig = await open_rig()
    await rig.append(1000)
    await cancel(rig)
    await cancel(rig, "resp-unknown")
    await rig.clock.advance(1)
    assert rig.codes() == ["response_not_active"]
    await rig.say(*spoken("r", ("one", 100)))
    await cancel(rig, FIRST)
    assert rig.codes() == ["response_not_active"] * 2
    assert rig.link.named("cancel") == []


async def test_a_second_cancel_changes_nothing() -> None:
    rig = await speaking(slow=True)
    await cancel(rig)
    await cancel(rig)
    await rig.say(ResponseDone("r", "cancelled"))
    await rig.clock.advance(1)
    assert [event.status for event in rig.of(Done)] == ["cancelled"]
    assert rig.codes() == ["response_not_active"]


async def test_a_clear_of_finished_output_moves_only_the_cursor() -> None:
    """Case 53."""
    rig = await open_rig()
    await rig.append(1000)
    await rig.say(*spoken("r", ("one", 2000)))
    await rig.session.submit(PlaybackAck(500, response_id=FIRST))
    await rig.session.submit(ClearOutput())
    await rig.clock.advance(0)
    assert [event.response_id for event in rig.of(OutputCleared)] == [FIRST]
    assert len(rig.of(Done)) == 1
    assert rig.link.named("cancel") == []


async def test_what_was_heard_is_cut_where_the_marks_say() -> None:
    """Case 49."""
    rig = await open_rig()
    await rig.append(1000)
    await rig.say(*spoken("r", ("abcdefghij", 1000), ("klmnopqrst", 1000), done=False))
    await rig.session.submit(PlaybackAck(1500, response_id=FIRST))
    await cancel(rig)
    (done,) = rig.of(Done)
    assert done.item.content[0].text == "abcdefghijklmno"
    assert rig.facts("heard")[-1]["text"] == "abcdefghijklmno"


async def test_input_of_the_user_outlives_a_cancel() -> None:
    rig = await speaking()
    await rig.append(400)
    await cancel(rig)
    await rig.append(600)
    assert [unit.end_ms for unit in rig.link.units] == [1000, 2000]


async def test_a_response_that_begins_behind_the_cancel_is_of_the_new_epoch() -> None:
    rig = await speaking()
    await cancel(rig)
    await rig.say(ResponseCreated("s"), *spoken("s", ("fresh", 100))[1:])
    assert [event.response_id for event in rig.of(Done)] == [FIRST, "resp-duplex-1-1-00000001"]


async def test_a_cancel_needs_a_newer_fence() -> None:
    rig = await speaking()
    for next_fence in (Fence(0, 0), Fence(0, 9)):
        with pytest.raises(Conflict) as error:
            await rig.backend.cancel(Fence(0, 0), next_fence)
        assert error.value.code == "stale_fence"
    assert rig.link.named("cancel") == []


@pytest.mark.parametrize("begins", [True, False])
async def test_a_cancel_before_the_engine_begins_what_was_asked(begins: bool) -> None:
    """The commit is on its way when the cancel comes: an answer that begins all the same is never heard."""
    rig = await open_rig(TURN)
    rig.link.hold("commit")
    await rig.append(1000)
    await rig.commit(create=True)
    await cancel(rig)
    await rig.clock.advance(0.3)
    assert rig.link.named("cancel") == [None]
    if begins:
        await rig.say(*spoken("r", ("stale", 200), done=False), ResponseDone("r", "cancelled"))
    await rig.clock.advance(1)
    assert rig.of(Done) == []  # its turn was not committed, so no response was announced
    assert rig.of(OutputAudioDelta) == []
    rig.link.free("commit")
    await rig.append(1000)
    await rig.commit(create=True)
    await rig.say(*spoken("s", ("fresh", 200)))
    assert [event.status for event in rig.of(Done)] == ["completed"]
    assert len(rig.of(OutputAudioDelta)) == 1


async def test_another_session_is_not_delayed() -> None:
    rig = await speaking(slow=True)
    other = await open_rig(clock=rig.clock, session_id="duplex-2")
    await other.append(1000)
    await cancel(rig)
    await other.say(*spoken("r", ("one", 200)))
    assert len(other.of(OutputAudioDelta)) == 1
