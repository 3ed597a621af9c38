"""The actor in calm weather: operations, waiting, events, time-outs. Races have files of their own."""

import asyncio

import pytest

from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AppendInput, AskQuery, Cancel, Configure, CreateResponse
from orchestrator.session.events import ResponseDone, TickEvent
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, VigilError
from tests.fakes.backend import ScriptedBackend, frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig, open_rig


async def test_an_operation_returns_the_tick_that_answered_it(rig: Rig) -> None:
    asking = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 5.0))
    await settle()
    rig.backend.speak("hello", operations=("a",))
    outcome = await asking
    assert (outcome.action, outcome.text) == ("response", "hello")
    assert outcome.response_id == "resp-duplex-1-0-00000000"
    assert outcome.record["tick"] == 0


async def test_operations_that_ride_one_tick_get_one_answer(rig: Rig) -> None:
    both = asyncio.gather(
        rig.session.operation(AskQuery("smoke?", "q"), 5.0),
        rig.session.operation(AppendInput("a", frame()), 5.0),
    )
    await settle()
    rig.backend.stay_silent(tick=7, operations=("q", "a"))
    assert [outcome.record["tick"] for outcome in await both] == [7, 7]


async def test_the_same_operation_again_gets_the_same_answer_and_no_second_frame(rig: Rig) -> None:
    first = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 5.0))
    second = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 5.0))
    await settle()
    rig.backend.stay_silent(operations=("a",))
    assert await first == await second
    assert await rig.session.operation(AppendInput("a", frame()), 5.0) == await first
    assert rig.backend.methods().count("append") == 1


async def test_an_unanswered_operation_times_out_and_the_session_goes_on(rig: Rig) -> None:
    asking = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 5.0))
    await settle()
    await rig.clock.advance(5.0)
    with pytest.raises(EngineUnavailable) as late:
        await asking
    assert late.value.code == "timeout"
    again = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 5.0))
    await settle()
    rig.backend.stay_silent(operations=("a",))
    assert (await again).action == "silence"


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind(rig: Rig) -> None:
    asking = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 5.0))
    await settle()
    asking.cancel()
    await settle()
    assert rig.session.statistics()["waiters"] == 0
    rig.backend.stay_silent(operations=("a",))
    assert (await rig.session.operation(AppendInput("a", frame()), 5.0)).action == "silence"


async def test_a_refused_append_raises_at_its_operation_and_is_no_event(rig: Rig) -> None:
    events = rig.session.events()
    rig.backend.fail("append", InvalidRequest("not a picture", code="bad_frame"))
    with pytest.raises(InvalidRequest) as refused:
        await rig.session.operation(AppendInput("a", frame()), 5.0)
    assert refused.value.code == "bad_frame"
    assert events.statistics()["queued"] == 0


async def test_a_submitted_command_that_is_refused_becomes_an_error_event(rig: Rig) -> None:
    events = rig.session.events()
    await rig.session.submit(CreateResponse(event_id="evt_1"))
    event = await anext(events)
    assert event.type == "error"
    assert event.error.body() == {  # type: ignore[attr-defined]
        "type": "invalid_request_error",
        "code": "response_create_without_input",
        "message": "there is nothing to answer; append input or ask first",
        "event_id": "evt_1",
    }


async def test_perform_returns_when_carried_out_and_raises_refusals(rig: Rig) -> None:
    await rig.session.perform(Configure(SessionConfig("m", persona="silent")), 5.0)
    assert rig.session.config.persona == "silent"
    with pytest.raises(VigilError) as refused:
        await rig.session.perform(Configure(SessionConfig("other")), 5.0)
    assert refused.value.code == "model_update_unsupported"


async def test_commands_reach_the_backend_in_arrival_order(rig: Rig) -> None:
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("a", frame()))
    await rig.session.submit(AskQuery("smoke?", "q"))
    await rig.session.submit(AppendInput("b", frame()))
    await rig.session.submit(CreateResponse())
    await settle()
    assert rig.backend.methods() == ["open", "append"]
    rig.backend.free("append")
    await settle()
    assert rig.backend.methods() == ["open", "append", "tell", "append", "commit"]


async def test_output_flows_while_a_backend_call_is_in_flight(rig: Rig) -> None:
    events = rig.session.events()
    await rig.session.submit(AppendInput("a", frame()))
    await settle()
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("b", frame()))
    await settle()
    rig.backend.speak("hello", operations=("a",))
    seen = [await anext(events) for _ in range(13)]
    assert [e.text for e in seen if isinstance(e, ResponseDone)] == ["hello"]


async def test_every_reader_sees_every_event(rig: Rig) -> None:
    readers = [rig.session.events(), rig.session.events()]
    await rig.session.submit(AppendInput("a", frame()))
    await settle()
    rig.backend.stay_silent(tick=3, operations=("a",))
    for reader in readers:
        seen = [await anext(reader) for _ in range(2)]
        assert [event.type for event in seen] == ["response.listen", "vigil.tick"]
        assert [event.record["tick"] for event in seen if isinstance(event, TickEvent)] == [3]
    readers[0].close()
    assert len(rig.session.statistics()["subscriptions"]) == 1  # type: ignore[arg-type]


async def test_a_backend_call_past_its_deadline_is_refused_and_rolled_back(rig: Rig) -> None:
    rig.backend.hold("append")
    asking = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    await rig.clock.advance(10.0)
    with pytest.raises(EngineUnavailable) as late:
        await asking
    assert late.value.code == "timeout"
    assert rig.session.statistics()["pending_input_bytes"] == 0
    rig.backend.free("append")
    again = asyncio.create_task(rig.session.operation(AppendInput("a", frame()), 60.0))
    await settle()
    rig.backend.stay_silent(operations=("a",))
    assert (await again).action == "silence"


async def test_opening_past_its_deadline_closes_the_backend() -> None:
    backend = ScriptedBackend()
    backend.hold("open")
    opening = asyncio.create_task(open_rig(backend, RuntimeLimits(open_s=0.0)))
    with pytest.raises(EngineUnavailable):
        await opening
    assert backend.closed


async def test_a_failed_open_closes_the_backend_and_raises_its_error() -> None:
    backend = ScriptedBackend()
    backend.fail("open", EngineUnavailable("no engine"))
    with pytest.raises(EngineUnavailable):
        await open_rig(backend)
    assert backend.closed


async def test_the_log_is_durable_when_the_session_is_closed(rig: Rig) -> None:
    await rig.session.close("client_close")
    assert rig.log.kinds() == ["session_opened", "epoch_begun", "session_ended"]
    assert rig.log.flushes == 1
    assert rig.session.released


async def test_closing_twice_is_closing_once(rig: Rig) -> None:
    await asyncio.gather(rig.session.close("a"), rig.session.close("b"))
    assert rig.backend.methods().count("close") == 1


async def test_events_of_a_closed_session_end_at_once(rig: Rig) -> None:
    await rig.session.close("client_close")
    assert [event async for event in rig.session.events()] == []


async def test_cancel_with_nothing_active_interrupts_nothing(rig: Rig) -> None:
    rig.backend.hold("append")
    await rig.session.submit(AppendInput("a", frame()))
    await settle()
    await rig.session.submit(Cancel("unknown"))
    await rig.clock.advance(1.0)
    assert rig.backend.cancelled == []
