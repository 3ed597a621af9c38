"""An engine session is lost: taken up again, replaced by one that knows what was said, or a clear end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridges.duplex_client.link import EngineFault, Heard, LinkCode, LinkError, ResponseDone
from orchestrator.backends.native.options import NativeOptions
from orchestrator.session.commands import PlaybackAck
from orchestrator.session.events import (
    ErrorEvent,
    NoticeEvent,
    OutputAudioDelta,
    SessionExpired,
)
from orchestrator.session.events import ResponseDone as Done
from prompts.native import Seed
from tests.backends.native.harness import DUPLEX, TURN, Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import ScriptedLink, listen, spoken

FIRST = "resp-duplex-1-0-00000000"


async def heard(rig: Rig) -> None:
    """A first exchange, heard to its end."""
    await rig.append(1000)
    await rig.say(Heard("item", "What is this?"), *spoken("r", ("A blue cup.", 1000)))
    await rig.session.submit(PlaybackAck(1000, response_id=FIRST))
    await settle()


def notices(rig: Rig) -> list[str]:
    return [event.code for event in rig.of(NoticeEvent)]


# --- the socket ---------------------------------------------------------------------------------------------


async def test_a_lost_socket_that_comes_back_costs_the_client_nothing_but_time() -> None:
    rig = await open_rig()
    await rig.append(1000)
    rig.link.drop()
    await settle()
    for _ in range(5):
        await rig.append(200)
    await rig.append(1000)
    await rig.clock.advance(3)
    assert len(rig.link.units) == 1
    rig.link.resume()
    await rig.clock.advance(0.1)
    assert [unit.end_ms for unit in rig.link.units] == [1000, 2000, 3000]
    assert (rig.codes(), notices(rig), len(rig.links.made)) == ([], [], 1)


async def test_what_was_written_and_never_confirmed_is_a_gap_and_not_sent_again() -> None:
    rig = await open_rig()
    await rig.append(2000)
    rig.link.drop()
    await settle()
    rig.link.resume("evt_2")
    await rig.append(1000)
    await rig.clock.advance(1)
    assert [unit.end_ms for unit in rig.link.units] == [1000, 2000, 3000]
    (gap,) = rig.facts("media_gap")
    assert gap == {"units": (1,), "start_ms": 1000, "end_ms": 2000, "reason": "unconfirmed"}


# --- the session --------------------------------------------------------------------------------------------


async def test_a_lost_session_goes_on_in_a_fresh_one_that_knows_what_was_said() -> None:
    rig = await open_rig(instructions="Be kind.")
    await heard(rig)
    rig.link.end()
    await settle()
    await rig.clock.advance(4)
    assert len(rig.links.made) == 2
    seed = str(rig.link.body["instructions"])
    assert seed.startswith("Be kind.")
    assert "What is this?" in seed and "A blue cup." in seed
    assert notices(rig) == ["engine_recovered"]
    await rig.append(1000)
    await rig.say(*spoken("r", ("Still here.", 500)))
    assert [event.response_id for event in rig.of(Done)] == [FIRST, "resp-duplex-1-0-00000001"]
    assert rig.session.id == "duplex-1"
    assert rig.seats.states == ["lost", "opened"]
    reasons = [fact["reason"] for fact in rig.facts("engine_session_opened")]
    assert reasons == ["opened", "engine_lost"]


async def test_where_the_profile_says_so_an_item_tells_what_was_said() -> None:
    horizon = replace(DUPLEX.horizon, seed=Seed.TEXT_ITEM)
    rig = await open_rig(replace(DUPLEX, horizon=horizon), instructions="Be kind.")
    assert rig.link.named("add_item") == []
    await heard(rig)
    rig.link.end()
    await rig.clock.advance(4)
    assert rig.link.body["instructions"] == "Be kind."
    (item,) = rig.link.named("add_item")
    (part,) = item["content"]
    assert "A blue cup." in part["text"]
    assert "Be kind." not in part["text"]


async def test_a_response_that_was_open_ends_incomplete_and_keeps_what_was_heard() -> None:
    rig = await open_rig()
    await rig.append(1000)
    await rig.say(*spoken("r", ("abcdefghij", 1000), ("klmnopqrst", 1000), done=False))
    await rig.session.submit(PlaybackAck(1000, response_id=FIRST))
    rig.link.end("request_cleanup", confirmed=True)
    await settle()
    (done,) = rig.of(Done)
    assert (done.status, done.reason) == ("incomplete", "engine_lost")
    assert rig.facts("heard")[-1]["text"] == "abcdefghij"
    await rig.clock.advance(4)
    # The fresh engine may use the same names: they mean something else now.
    await rig.say(*spoken("r", ("new", 500)))
    assert len(rig.of(OutputAudioDelta)) == 3
    assert rig.seats.states == ["freed", "opened"]


async def test_input_that_came_meanwhile_goes_to_the_fresh_session_in_order() -> None:
    rig = await open_rig()
    await heard(rig)

    def slow(link: ScriptedLink) -> None:
        link.hold("open")

    rig.links.prepare = slow
    rig.link.end()
    await settle()
    for _ in range(5):
        await rig.append(500)
        await rig.clock.advance(0.5)
    rig.link.free("open")
    await rig.clock.advance(4)
    real = [unit for unit in rig.link.units if any(unit.pcm or b"")]
    assert [unit.end_ms for unit in real] == [2000, 3000]
    assert rig.codes() == []


async def test_an_engine_that_refuses_is_asked_again_and_then_the_end_is_clear() -> None:
    rig = await open_rig()
    await heard(rig)

    def refuse(link: ScriptedLink) -> None:
        link.refuse_open = LinkError(LinkCode.CONNECT_FAILED, "nobody")

    rig.links.prepare = refuse
    rig.link.end()
    await settle()
    for _ in range(80):
        await rig.clock.advance(1)
    assert notices(rig) == ["engine_lost"]
    assert [event.error.code for event in rig.of(ErrorEvent)] == ["engine_lost"]
    assert [event.reason for event in rig.of(SessionExpired)] == ["request_cleanup"]
    assert not rig.session.is_open
    assert len(rig.links.made) > 3
    assert all(seat.over for seat in rig.seats.seats)


async def test_a_model_that_cannot_be_told_what_was_said_ends_clearly() -> None:
    horizon = replace(DUPLEX.horizon, seed=Seed.NONE)
    rig = await open_rig(replace(DUPLEX, horizon=horizon))
    await heard(rig)
    rig.link.end()
    await rig.clock.advance(1)
    assert notices(rig) == ["engine_lost"]
    assert not rig.session.is_open
    assert len(rig.links.made) == 1


async def test_an_engine_that_loses_the_session_again_and_again_is_given_up() -> None:
    rig = await open_rig(options=NativeOptions(lives=2, lives_s=60))
    await heard(rig)
    for _ in range(3):
        rig.link.end()
        await settle()
        await rig.clock.advance(5)
    assert not rig.session.is_open
    assert notices(rig) == ["engine_recovered", "engine_recovered", "engine_lost"]


# --- an engine that says nothing ----------------------------------------------------------------------------


async def test_an_engine_that_stops_answering_units_is_left() -> None:
    rig = await open_rig(script=lambda link, unit: [listen()])
    await rig.append(1000)
    rig.link.script = lambda link, unit: []
    wedged = rig.link
    for _ in range(25):
        await rig.append(1000)
        await rig.clock.advance(1)
    assert wedged.named("close") == ["wedged"]
    assert len(rig.links.made) == 2
    assert notices(rig) == ["engine_recovered"]


async def test_an_engine_that_never_says_anything_of_single_units_is_not_wedged() -> None:
    rig = await open_rig()
    for _ in range(60):
        await rig.append(1000)
        await rig.clock.advance(1)
    assert len(rig.links.made) == 1


async def test_an_engine_that_never_says_a_word_is_wedged_in_the_end() -> None:
    rig = await open_rig()
    for _ in range(125):
        await rig.append(1000)
        await rig.clock.advance(1)
    assert rig.links.made[0].named("close") == ["wedged"]
    assert len(rig.links.made) == 2
    assert [event.code for event in rig.of(NoticeEvent)] == ["engine_recovered"]


async def test_what_an_engine_says_that_is_no_event_is_the_engine_s_fault() -> None:
    rig = await open_rig()
    await rig.say(EngineFault(LinkCode.BAD_ENGINE_EVENT, "no JSON"))
    assert rig.codes() == ["engine_error"]


async def test_an_answer_that_was_asked_for_and_never_begins_is_a_wedged_engine() -> None:
    rig = await open_rig(TURN)
    await rig.append(1000)
    await rig.commit(create=True)
    await rig.clock.advance(25)
    (done,) = rig.of(Done)
    assert (done.status, done.reason) == ("failed", "engine_lost")
    assert len(rig.links.made) == 2


# --- a session that goes on after a restart -----------------------------------------------------------------


async def test_a_session_that_is_taken_up_again_tells_the_engine_what_was_said() -> None:
    from memory.facts import AnyFact, parse_fact

    rig = await open_rig()
    await heard(rig)
    await rig.session.close("shutdown")
    history: list[AnyFact] = [
        fact for kind, data in rig.log.entries if (fact := parse_fact(kind, dict(data))) is not None
    ]
    again = await open_rig(history=history)
    assert "A blue cup." in str(again.link.body["instructions"])
    assert again.facts("spoken_opened") == []


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_late_terminal_of_the_lost_session_changes_nothing(status: str) -> None:
    rig = await open_rig()
    await rig.append(1000)
    await rig.say(*spoken("r", ("one", 100), done=False))
    old = rig.link
    old._events.put_nowait(ResponseDone("r", status))
    old.end()
    await rig.clock.advance(5)
    assert len(rig.of(Done)) == 1
