"""Tools of the client's: the model calls, the client answers once; ids of the engine stay with the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from bridges.duplex_client.link import ToolCall
from orchestrator.runtime.attachment import Attachment
from orchestrator.wire.client import ItemCreate
from tests.backends.native.harness import DUPLEX, Rig, open_rig
from tests.backends.native.test_sockets import taken
from tests.fakes.clock import settle
from tests.fakes.link import spoken

WITH_TOOLS = replace(DUPLEX, tools=True)


async def called(**more: Any) -> tuple[Rig, Attachment, list[dict[str, Any]]]:
    """A session whose model has called a tool; what its client was told of it."""
    rig = await open_rig(WITH_TOOLS, **more)
    attachment = rig.session.attach()
    await rig.append(1000)
    taken(rig)
    await rig.say(ToolCall("engine-call", "look_up", '{"what": "cups"}'))
    return rig, attachment, taken(rig)


async def answer(attachment: Attachment, **item: Any) -> None:
    attachment.receive(
        ItemCreate(type="conversation.item.create", item={"type": "function_call_output", **item})
    )
    await settle()


async def test_a_call_is_a_small_response_of_its_own() -> None:
    _, _, told = await called()
    assert [each["type"] for each in told] == [
        "response.created",
        "conversation.item.added",
        "conversation.item.created",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    (item,) = told[-1]["response"]["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "look_up", '{"what": "cups"}')
    assert told[0]["response_id"].startswith("resp_")
    assert "engine-call" not in repr(told)


async def test_the_openai_types_accept_it() -> None:
    from openai.types.realtime.realtime_server_event import RealtimeServerEvent

    _, _, told = await called()
    adapter: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
    for each in told:
        adapter.validate_python(each)


async def test_its_output_reaches_the_engine_under_the_engines_own_id_and_once() -> None:
    rig, attachment, told = await called()
    call_id = told[5]["call_id"]
    await answer(attachment, id="item_mine", call_id=call_id, output="three blue cups")
    assert rig.link.named("add_item") == [
        {"type": "function_call_output", "call_id": "engine-call", "output": "three blue cups"}
    ]
    assert [each["item"]["id"] for each in taken(rig)] == ["item_mine"] * 3
    await answer(attachment, call_id=call_id, output="again")
    await answer(attachment, call_id="unknown", output="x")
    await answer(attachment, call_id=call_id)
    errors = [each["error"] for each in taken(rig)]
    assert [(e["code"], e["param"]) for e in errors] == [
        ("invalid_function_call_output", "item.call_id"),
        ("invalid_function_call_output", "item.call_id"),
        ("invalid_function_call_output", "item.output"),
    ]
    assert len(rig.link.named("add_item")) == 1


async def test_a_call_beside_what_is_said_does_not_end_it() -> None:
    rig, _, _ = await called()
    await rig.say(*spoken("r", ("I will look. ", 200), done=False))
    await rig.say(ToolCall("engine-2", "look_up", "{}"))
    await rig.say(*spoken("r", ("Here.", 200))[2:])
    done = [each for each in taken(rig) if each["type"] == "response.done"]
    assert [len(each["response"]["output"]) for each in done] == [1, 1]
    assert done[1]["response"]["output"][0]["content"][0]["transcript"] == "I will look. Here."


async def test_a_call_of_an_engine_session_that_is_gone_cannot_be_answered() -> None:
    rig, attachment, told = await called()
    rig.link.end()
    await rig.clock.advance(5)
    taken(rig)
    await answer(attachment, call_id=told[5]["call_id"], output="too late")
    assert [each["error"]["code"] for each in taken(rig)] == ["invalid_function_call_output"]
    assert rig.link.named("add_item") == []
